"""Log lines: one shape for own and foreign lines, and nothing secret in them."""

import io
import json
import logging
from typing import Any

import pytest

from blockyard.runtime.current_trace import TraceScope
from blockyard.runtime.logs import configure_logs, get_logger
from blockyard.runtime.settings import LogSection
from blockyard.wire.trace_parent import new_trace, trace_id_of

pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_own_and_foreign_lines_have_one_shape(stream: io.StringIO) -> None:
    configure_logs(LogSection(json_lines=True), "remote-tier", stream)
    get_logger("ours").info("put", pack=3)
    logging.getLogger("theirs").warning("slow %s", "call")
    own, foreign = lines(stream)
    assert own["pack"] == 3
    for line, name, level, event in ((own, "ours", "info", "put"), (foreign, "theirs", "warning", "slow call")):
        assert (line["logger"], line["level"], line["event"]) == (name, level, event)
        assert line["service"] == "remote-tier"
        assert "timestamp" in line


def test_lines_below_the_level_are_left_out(stream: io.StringIO) -> None:
    configure_logs(LogSection(level="warning", json_lines=True), "x", stream)
    get_logger("ours").info("no")
    logging.getLogger("theirs").info("no")
    get_logger("ours").error("yes")
    assert [line["event"] for line in lines(stream)] == ["yes"]


def test_secrets_and_request_content_are_masked(stream: io.StringIO) -> None:
    configure_logs(LogSection(json_lines=True), "x", stream)
    get_logger("ours").info("call", secret_key="abc", Token_Ids=[1, 2], password="abc", keys=2)
    logging.getLogger("theirs").info("call", extra={"authorization": "abc"})
    assert "abc" not in stream.getvalue()
    assert lines(stream)[0]["Token_Ids"] == "(hidden)"
    assert lines(stream)[0]["keys"] == 2


def test_payload_and_long_lists_are_shortened(stream: io.StringIO) -> None:
    configure_logs(LogSection(json_lines=True), "x", stream)
    get_logger("ours").info("block", short=b"\x01\x02", long=bytes(range(200)), many=list(range(100)), few=[1])
    (line,) = lines(stream)
    assert line["short"] == "0102"
    assert line["long"] == "0001020304050607… (200 bytes)"
    assert line["many"] == "(100 items)"
    assert line["few"] == [1]


@pytest.mark.parametrize("json_lines", [True, False])
def test_an_error_is_logged_with_its_trace(stream: io.StringIO, json_lines: bool) -> None:
    configure_logs(LogSection(json_lines=json_lines), "x", stream)
    get_logger("ours").error("crashed", exc_info=ValueError("the reason"))
    assert "ValueError: the reason" in stream.getvalue()


def test_setting_up_twice_does_not_double_the_lines(stream: io.StringIO) -> None:
    for _ in range(2):
        configure_logs(LogSection(json_lines=True), "x", stream)
    get_logger("ours").info("once")
    assert len(lines(stream)) == 1


@pytest.mark.parametrize("json_lines", [True, False])
def test_a_line_written_in_work_for_a_trace_names_it(stream: io.StringIO, json_lines: bool) -> None:
    configure_logs(LogSection(json_lines=json_lines), "x", stream)
    trace = new_trace()
    with TraceScope(trace):
        get_logger("ours").info("inside")
        logging.getLogger("theirs").warning("inside")
    get_logger("ours").info("outside")
    named = [trace_id_of(trace) in line for line in stream.getvalue().splitlines()]
    assert named == [True, True, False]
    assert "trace_id" not in stream.getvalue().splitlines()[-1]
