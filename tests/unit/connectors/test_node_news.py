"""What the log of an engine says of its node: once that there is none, where and what to do, and once that there is."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.manager_link import ManagerLink
from blockyard.core.errors import EngineNameTakenError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import EngineId
from blockyard.testing.scripted_manager import WAIT_SECONDS, ScriptedManager, served
from blockyard.wire import connector_channel as channel

_MODULE = "blockyard.connectors.manager_connector"
OpenClient = Callable[[], AbstractAsyncContextManager[BlockyardClient]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


@pytest.fixture
def new_client(path: Path) -> Iterator[OpenClient]:
    with EngineMemory(8, 4_096) as memory:
        description = memory.description(EngineId("e"), ModelIdentity(model="m"))
        yield lambda: BlockyardClient(path, description, memory.guards, memory=memory.rank)


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Attempts to connect, which follow each other at once."""
    made: list[Path] = []
    really_open = ManagerLink.open

    async def counting(socket: Path, on_notice: Callable[[object], None]) -> ManagerLink:
        made.append(socket)
        return await really_open(socket, on_notice)

    monkeypatch.setattr(ManagerLink, "open", counting)
    for name in ("_FIRST_PAUSE_SECONDS", "_LONGEST_PAUSE_SECONDS", "_REFUSED_SECONDS"):
        monkeypatch.setattr(f"{_MODULE}.{name}", 0.001)
    return made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """That there is no node is news at once."""
    monkeypatch.setattr(f"{_MODULE}._AWAY_SECONDS", 0.0)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, _MODULE)
    return caplog


def said(log: pytest.LogCaptureFixture) -> list[str]:
    """Levels of what was said, in order."""
    return [line.levelname for line in log.records if line.name == _MODULE]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.usefixtures("impatient")
async def test_each_absence_of_the_node_is_said_once_and_so_is_its_end(
    new_client: OpenClient, path: Path, attempts: list[Path], log: pytest.LogCaptureFixture
) -> None:
    async with new_client() as client:
        await until(lambda: len(attempts) > 5)
        assert said(log) == ["WARNING"]
        for part in ("engine e", str(path), "No such file", "blockyard.socket"):
            assert part in log.text
        for _ in range(2):
            async with served(path, ScriptedManager()):
                await client.wait_connected(WAIT_SECONDS)
            before = len(attempts)
            await until(lambda: len(attempts) > before + 5)  # noqa: B023 - awaited here
    assert said(log) == ["WARNING", "INFO", "WARNING", "INFO", "WARNING"]


async def test_a_node_that_was_away_for_a_moment_is_no_news(
    new_client: OpenClient, path: Path, attempts: list[Path], log: pytest.LogCaptureFixture
) -> None:
    async with new_client() as client:
        await until(lambda: len(attempts) > 5)
        for _ in range(2):
            async with served(path, ScriptedManager()):
                await client.wait_connected(WAIT_SECONDS)
            await until(lambda: not client.connected)
    assert said(log) == ["INFO"]
    assert f"engine e is connected to the block-manager at {path}" in log.text


async def test_a_refusal_is_said_once_with_its_remedy_and_the_connection_after_it(
    new_client: OpenClient, path: Path, attempts: list[Path], log: pytest.LogCaptureFixture
) -> None:
    script = ScriptedManager()

    async def refuse() -> channel.Reply:
        raise EngineNameTakenError("an engine of this name is connected already", engine="e", pid=17)

    script.answers[channel.Hello] = refuse
    async with new_client() as client, served(path, script):
        with pytest.raises(EngineNameTakenError, match="pid=17"):
            await client.wait_connected(WAIT_SECONDS)
        await until(lambda: len(attempts) > 5)
        assert said(log) == ["WARNING"]
        assert "pid=17" in log.text
        assert "blockyard.name" in log.text
        script.answers.clear()
        await until(lambda: client.connected)
    assert said(log) == ["WARNING", "INFO"]
