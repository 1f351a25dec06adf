"""Whatever an engine says, or stops saying in the middle, is the outcome of a command or one of two errors."""

import asyncio

import pytest

from blockyard.cli.engine_link import LINE_LIMIT_BYTES, EngineLink
from blockyard.cli.failures import EngineCommandError
from blockyard.core.errors import PeerClosedError

DONE = b'{"event": "done", "cmd": "stats", "stats": {"requests": 3}}\n'


class HeardEngine(EngineLink):
    """An engine that has said these bytes and then ended."""

    def __init__(self, said: bytes) -> None:
        super().__init__("engine-a")
        self._reader = asyncio.StreamReader(LINE_LIMIT_BYTES)
        self._reader.feed_data(said)
        self._reader.feed_eof()

    async def _read_line(self) -> bytes:
        return await self._reader.readline()

    def _write_line(self, line: bytes) -> None:
        pass

    def _gone(self) -> PeerClosedError:
        return PeerClosedError("gone", engine=self.name)


async def test_an_answer_is_heard() -> None:
    assert (await HeardEngine(DONE).stats()).requests == 3


@pytest.mark.parametrize("said", [b"", DONE[:20], DONE.strip()], ids=["nothing", "a part", "all but the end"])
async def test_an_answer_that_was_cut_off_is_the_end_of_the_engine(said: bytes) -> None:
    with pytest.raises(PeerClosedError, match="engine-a"):
        await HeardEngine(said).stats()


@pytest.mark.parametrize(
    "said",
    [
        b"\n",
        b"oops\n",
        b"\xff\n",
        b'{"event": "surprise"}\n',
        b'{"event": "done", "cmd": 7}\n',
        b'{"event": "done", "cmd": "x", "y": ' + b"[" * 20_000 + b"]" * 20_000 + b"}\n",
        b'"' + b"x" * (LINE_LIMIT_BYTES + 1) + b'"\n',
    ],
    ids=["empty", "no JSON", "no text", "unknown", "wrong kind", "deep", "long"],
)
async def test_what_is_no_event_is_an_error_that_names_the_engine(said: bytes) -> None:
    engine = HeardEngine(said + DONE)
    with pytest.raises(EngineCommandError, match=r"not an event of a demo engine.*engine=engine-a"):
        await engine.stats()
    with pytest.raises(EngineCommandError, match="given up"):
        await engine.stats()
