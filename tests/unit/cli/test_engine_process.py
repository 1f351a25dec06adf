"""Driving a demo engine over its pipes: answers, progress, refusals and a sudden end."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from blockyard.cli.child_process import ChildSpec
from blockyard.cli.engine_process import EngineProcess, EngineSpec
from blockyard.cli.failures import EngineCommandError
from blockyard.core.errors import PeerClosedError

SCRIPT = """
import json, os, sys
say = lambda **event: print(json.dumps(event), flush=True)
say(event="ready", requests=7)
for line in sys.stdin:
    command = json.loads(line)
    match command["cmd"]:
        case "replay" if command["first"] == 99:
            import time
            time.sleep(60)
        case "replay":
            say(event="progress", served=1, of=2, stats={"requests": 1})
            say(event="done", cmd="replay", stats={"requests": 2, "verified": {"G2": 3, "G3": 0, "G4": 1}})
        case "probe":
            if command["key"] == "missing":
                say(event="error", code="bad-request", detail="no such block")
            else:
                say(event="done", cmd="probe", stats={}, block={"key": command["key"], "status": "OK", "source": "G3"})
        case "reset":
            print("fatal: memory is gone", file=sys.stderr, flush=True)
            os._exit(3)
        case "stats":
            say(event="surprise")
        case "quit":
            say(event="done", cmd="quit")
            break
"""


class ScriptedSpec(EngineSpec):
    """A program that speaks the protocol of the demo engine."""

    def child(self) -> ChildSpec:
        return ChildSpec(self.name, (sys.executable, "-S", "-c", SCRIPT), self.log_file, piped=True)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[EngineProcess]:
    process = EngineProcess(ScriptedSpec("engine", tmp_path / "none.sock", 1, 4096, tmp_path / "engine.log"))
    await process.wait_ready()
    assert process.requests == 7
    yield process
    await process.stop()
    assert not process.running


async def test_replay_reports_progress_and_ends_with_counters(engine: EngineProcess) -> None:
    seen: list[tuple[int, int]] = []
    stats = await engine.replay(0, 2, on_progress=lambda event: seen.append((event.served, event.of)))
    assert seen == [(1, 2)]
    assert (stats.requests, stats.verified.G2, stats.verified.G4) == (2, 3, 1)
    assert engine.latest == stats


async def test_probe_tells_what_became_of_the_block(engine: EngineProcess) -> None:
    report = await engine.probe("ab")
    assert (report.key, report.status, report.source) == ("ab", "OK", "G3")


async def test_refused_command_leaves_the_engine_usable(engine: EngineProcess) -> None:
    with pytest.raises(EngineCommandError, match="no such block"):
        await engine.probe("missing")
    assert (await engine.replay(0, 2)).requests == 2


async def test_end_of_the_engine_is_reported_with_its_log(engine: EngineProcess) -> None:
    with pytest.raises(PeerClosedError, match="memory is gone"):
        await engine.reset()


async def test_a_busy_engine_is_ended_without_being_asked(engine: EngineProcess) -> None:
    """It would first do what it was told, and nobody waits for that any more."""
    waiting = asyncio.create_task(engine.replay(99, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(EngineCommandError, match="given up"):
        await engine.replay(0, 1)
    async with asyncio.timeout(3):
        await engine.stop()
    assert not engine.running


async def test_unknown_event_is_an_error(engine: EngineProcess) -> None:
    with pytest.raises(EngineCommandError, match="not an event"):
        await engine.stats()


async def test_killed_engine_is_collected(engine: EngineProcess) -> None:
    engine.kill()
    assert not engine.running
