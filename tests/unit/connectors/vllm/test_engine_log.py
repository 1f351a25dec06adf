"""Lines of the connector appear in the log of the engine: once, with its handlers, from the level on that it shows."""

import logging
from collections.abc import Iterator

import pytest

from blockyard.connectors.vllm.engine_log import ENGINE, join_engine_log


class Shown(logging.Handler):
    """What a user sees."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.name, record.levelname, record.getMessage()))


@pytest.fixture
def ours() -> Iterator[logging.Logger]:
    """Our logger as a process of the engine finds it."""
    log = logging.getLogger("blockyard")
    before = log.level, log.handlers, log.propagate
    log.handlers = []
    yield log
    log.handlers, log.propagate = before[1:]
    log.setLevel(before[0])


@pytest.fixture
def shown() -> Iterator[Shown]:
    """The log of an engine that shows information and worse."""
    log, handler = logging.getLogger(ENGINE), Shown()
    before = log.level, log.handlers, log.propagate
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    yield handler
    log.handlers, log.propagate = before[1:]
    log.setLevel(before[0])


def test_lines_come_out_once_under_the_name_of_the_engine(ours: logging.Logger, shown: Shown) -> None:
    join_engine_log()
    join_engine_log()
    line = ours.getChild("connectors.manager_connector")
    line.warning("no node at %s", "here")
    line.info("a node")
    line.debug("not shown")
    assert shown.lines == [
        ("vllm.blockyard.connectors.manager_connector", "WARNING", "no node at here"),
        ("vllm.blockyard.connectors.manager_connector", "INFO", "a node"),
    ]


def test_an_engine_that_shows_errors_only_shows_only_ours(ours: logging.Logger, shown: Shown) -> None:
    join_engine_log()
    logging.getLogger(ENGINE).setLevel(logging.ERROR)
    ours.warning("no node")
    ours.error("a fault")
    assert shown.lines == [("vllm.blockyard", "ERROR", "a fault")]


def test_a_handler_that_somebody_gave_our_lines_is_left_alone(ours: logging.Logger, shown: Shown) -> None:
    own = Shown()
    ours.addHandler(own)
    join_engine_log()
    assert ours.handlers == [own]
    ours.error("a fault")
    assert own.lines == [("blockyard", "ERROR", "a fault")]
    assert shown.lines == []
