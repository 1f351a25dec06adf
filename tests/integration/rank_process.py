"""A rank that copies by itself, as a process: attaches by ``RankLink`` and obeys lines of JSON on its standard input.

Each answer is one line. ``half`` leaves a write half done, as a process that is killed there would.
"""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np

from blockyard.connectors.rank_link import RankLink
from blockyard.core.kv_groups import Region
from blockyard.core.vocabulary import EngineId, Generation
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import ByteArray


def row_of(name: int, size: int) -> ByteArray:
    """The only right bytes of a row."""
    return np.random.default_rng(name).integers(0, 256, size, np.uint8)


class Rank:
    """What a rank process does with the arena."""

    def __init__(self, row_bytes: int) -> None:
        """Rows have so many bytes."""
        self._row_bytes = row_bytes
        self._begun: ByteArray | None = None
        """Payload of a write that is half done; its memory stays mapped, as that of a copy under way does."""

    def obey(self, arena: Arena | None, order: dict[str, int | str]) -> str:
        """Carry out one order; the answer is one word."""
        slot, generation, size = int(order["slot"]), Generation(int(order["generation"])), self._row_bytes
        row = row_of(int(order["name"]), size)
        if order["do"] == "rest" and self._begun is not None:
            _fill(self._begun, row)
            return "written"
        if arena is None:
            return "no-arena"
        if order["do"] == "read":
            before = arena.is_current(slot, generation)
            right = bool(np.array_equal(arena.payload(slot)[:size], row))
            return "stale" if not (before and arena.is_current(slot, generation)) else "right" if right else "wrong"
        payload = arena.begin_write(slot, generation)
        if order["do"] == "half":
            payload[: size // 2] = row[: size // 2]
            self._begun = payload
            return "half"
        _fill(payload, row)
        return "written"


def _fill(payload: ByteArray, row: ByteArray) -> None:
    payload[: len(row)] = row
    payload[len(row) :] = 0


async def main(socket: Path, engine: str, row_bytes: int) -> None:
    """Serve until the input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    regions = ((Region(0, row_bytes, row_bytes),),)
    async with RankLink(socket, EngineId(engine), 0, 0, None, regions) as link:
        rank = Rank(row_bytes)
        while line := await reader.readline():
            print(rank.obey(link.arena, json.loads(line)), flush=True)


asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
