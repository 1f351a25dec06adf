"""Commands of the demo engine: each is answered by one ``done`` or ``error``, whatever it holds."""

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.mock.command_loop import CommandLoop, lines_of
from blockyard.connectors.mock.engine import MockEngine
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS
from blockyard.connectors.mock.trace_replay import TraceReplay
from blockyard.core.errors import RequestError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import EngineId
from blockyard.testing.scripted_manager import ScriptedManager, served

BLOCK_BYTES = 4_096
IDENTITY = ModelIdentity(model="m", block_bytes=BLOCK_BYTES, block_tokens=TRACE_BLOCK_TOKENS)


@asynccontextmanager
async def lonely_engine(folder: Path, blocks: int) -> AsyncIterator[MockEngine]:
    """An engine whose node is away: it serves all the same."""
    with EngineMemory(blocks, BLOCK_BYTES) as memory:
        description = memory.description(EngineId("e"), IDENTITY)
        async with BlockyardClient(folder / "none.sock", description, memory.guards, memory=memory.rank) as client:
            yield MockEngine(client, memory, IDENTITY)


async def answers(folder: Path, *lines: str, blocks: int = 64) -> list[dict[str, Any]]:
    commands, events = io.BytesIO("".join(f"{line}\n" for line in lines).encode()), io.BytesIO()
    async with lonely_engine(folder, blocks) as engine:
        await CommandLoop(engine, TraceReplay(engine), events.write).run(lines_of(commands))
    return [json.loads(line) for line in events.getvalue().splitlines()]


async def test_a_replay_without_a_node_computes_everything(tmp_path: Path) -> None:
    ready, done, end = await answers(tmp_path, '{"cmd": "replay", "first": 0, "count": 2}', '{"cmd": "quit"}')
    assert (ready["event"], end) == ("ready", {"event": "done", "cmd": "quit"})
    assert (done["event"], done["stats"]["requests"]) == ("done", 2)
    assert done["stats"]["computed"] + done["stats"]["g1_hits"] == done["stats"]["asked"] > 0
    assert done["stats"]["refused_calls"] > 0


async def test_a_reset_without_a_node_is_done(tmp_path: Path) -> None:
    _, done = await answers(tmp_path, '{"cmd": "reset"}')
    assert (done["event"], done["stats"]["refused_calls"]) == ("done", 1)


async def test_a_memory_too_small_for_a_request_is_an_answer_and_no_end(tmp_path: Path) -> None:
    _, failed, done = await answers(tmp_path, '{"cmd": "replay", "count": 30}', '{"cmd": "stats"}', blocks=1)
    assert (failed["event"], failed["code"]) == ("error", "out-of-blocks")
    assert (done["event"], done["cmd"]) == ("done", "stats")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "not JSON"),
        ("", "not JSON"),
        pytest.param('{"cmd": "stats", "x": ' + "[" * 20_000 + "]" * 20_000 + "}", "not JSON", id="deep"),
        ('{"cmd": "fly"}', "fly"),
        ('{"cmd": "replay", "concurrency": 0}', "concurrency"),
        ('{"cmd": "replay", "pace": -1}', "pace"),
        ('{"cmd": "probe", "key": "00"}', "no request"),
    ],
)
async def test_a_wrong_command_is_named_and_the_next_one_answered(tmp_path: Path, line: str, words: str) -> None:
    _, failed, done = await answers(tmp_path, line, '{"cmd": "stats"}')
    assert failed["event"] == "error"
    assert words in failed["detail"]
    assert RequestError.remedy not in failed["detail"]  # the controller's error has one
    assert done["event"] == "done"


@pytest.mark.parametrize("last_words", [b'{"cmd": "quit"}\n', b""])
async def test_the_process_ends_in_order(tmp_path: Path, last_words: bytes) -> None:
    """After ``quit`` while its input is still open, and at the end of its input."""
    path = tmp_path / "c.sock"
    async with served(path, ScriptedManager()):
        options = ("--socket", str(path), "--name", "e", "--blocks", "24", "--block-bytes", "4096")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "blockyard.connectors.mock", *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(20):
            assert b"ready" in await process.stdout.readline()
            process.stdin.write(last_words)
            if not last_words:
                process.stdin.close()
            said = await process.stderr.read()
        # On a busy machine it may have had to wait for its node.
        assert [line for line in said.splitlines() if b"waiting for the block-manager" not in line] == []
        assert await process.wait() == 0
        process.stdin.close()
