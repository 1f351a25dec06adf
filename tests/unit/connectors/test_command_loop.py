"""Commands of the demo engine: each is answered by one ``done`` or ``error``, whatever it holds."""

import io
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from blockyard.connectors.client import BlockyardClient, EngineDescription
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.mock.command_loop import CommandLoop
from blockyard.connectors.mock.engine import MockEngine
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import EngineId

BLOCK_BYTES = 4_096
IDENTITY = ModelIdentity(model="m", block_bytes=BLOCK_BYTES, block_tokens=TRACE_BLOCK_TOKENS)


@asynccontextmanager
async def lonely_engine(folder: Path, blocks: int) -> AsyncIterator[MockEngine]:
    """An engine whose node is away: it serves all the same."""
    description = EngineDescription(engine=EngineId("e"), identity=IDENTITY)
    with EngineMemory(blocks, BLOCK_BYTES) as memory:
        async with BlockyardClient(folder / "none.sock", description, memory) as client:
            yield MockEngine(client, memory, IDENTITY)


async def answers(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str, blocks: int = 64) -> list[dict[str, Any]]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in lines).encode())))
    output = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", output)
    async with lonely_engine(folder, blocks) as engine:
        await CommandLoop(engine).run()
    buffer = output.buffer
    assert isinstance(buffer, io.BytesIO)
    return [json.loads(line) for line in buffer.getvalue().splitlines()]


async def test_a_replay_without_a_node_computes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, done, end = await answers(
        tmp_path, monkeypatch, '{"cmd": "replay", "first": 0, "count": 2}', '{"cmd": "quit"}'
    )
    assert (ready["event"], end) == ("ready", {"event": "done", "cmd": "quit"})
    assert (done["event"], done["stats"]["requests"]) == ("done", 2)
    assert done["stats"]["computed"] + done["stats"]["g1_hits"] == done["stats"]["asked"] > 0
    assert done["stats"]["refused_calls"] > 0


async def test_a_reset_without_a_node_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, done = await answers(tmp_path, monkeypatch, '{"cmd": "reset"}')
    assert (done["event"], done["stats"]["refused_calls"]) == ("done", 1)


async def test_a_memory_too_small_for_a_request_is_an_answer_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, failed, done = await answers(
        tmp_path, monkeypatch, '{"cmd": "replay", "count": 30}', '{"cmd": "stats"}', blocks=1
    )
    assert (failed["event"], failed["code"]) == ("error", "out-of-blocks")
    assert (done["event"], done["cmd"]) == ("done", "stats")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "not JSON"),
        ('{"cmd": "fly"}', "fly"),
        ('{"cmd": "replay", "concurrency": 0}', "concurrency"),
        ('{"cmd": "replay", "pace": -1}', "pace"),
        ('{"cmd": "probe", "key": "00"}', "no request"),
    ],
)
async def test_a_wrong_command_is_named_and_the_next_one_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, words: str
) -> None:
    _, failed, done = await answers(tmp_path, monkeypatch, line, '{"cmd": "stats"}')
    assert failed["event"] == "error"
    assert words in failed["detail"]
    assert done["event"] == "done"
