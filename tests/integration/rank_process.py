"""A rank that copies by itself, as a process: attaches by ``RankLink`` and obeys lines of JSON on its standard input.

Each answer is one line. ``half`` leaves a write half done, as a process that is killed there would. Each of several
ranks writes its shard of a row, the last one the zeros behind it; each reads the whole row.
"""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np

from blockyard.connectors.rank_link import RankLink
from blockyard.core.errors import StaleGenerationError
from blockyard.core.kv_groups import Region
from blockyard.core.vocabulary import EngineId, Generation
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.header import HeaderVerdict


def row_of(name: int, size: int) -> ByteArray:
    """The only right bytes of a row."""
    return np.random.default_rng(name).integers(0, 256, size, np.uint8)


class Rank:
    """What a rank process does with the arena."""

    def __init__(self, row_bytes: int, rank: int, ranks: int) -> None:
        """Rows have so many bytes in the shards of all ranks."""
        self._row_bytes = row_bytes
        shard = row_bytes // ranks
        self._shard = slice(rank * shard, (rank + 1) * shard if rank + 1 < ranks else None)
        self._begun: ByteArray | None = None
        """Payload of a write that is half done; its memory stays mapped, as that of a copy under way does."""

    def obey(self, arena: Arena | None, order: dict[str, int | str]) -> str:
        """Carry out one order; the answer is one word."""
        slot, generation, size = int(order["slot"]), Generation(int(order["generation"])), self._row_bytes
        row = row_of(int(order["name"]), size)
        if order["do"] == "rest" and self._begun is not None:
            self._fill(self._begun, row)
            return "written"
        if arena is None:
            return "no-arena"
        if order["do"] == "read":
            before = arena.is_current(slot, generation)
            right = bool(np.array_equal(arena.payload(slot)[:size], row))
            return "stale" if not (before and arena.is_current(slot, generation)) else "right" if right else "wrong"
        payload = _begin(arena, slot, generation)
        if payload is None:
            return "stale"
        if order["do"] == "half":
            shard = payload[self._shard]
            shard[: len(shard) // 2] = row[self._shard][: len(shard) // 2]
            self._begun = payload
            return "half"
        self._fill(payload, row)
        return "written"

    def _fill(self, payload: ByteArray, row: ByteArray) -> None:
        whole = np.zeros_like(payload)
        whole[: len(row)] = row
        payload[self._shard] = whole[self._shard]


def _begin(arena: Arena, slot: int, generation: Generation) -> ByteArray | None:
    """Payload of a granted slot: the first rank opens it, the others find it open; None where the grant is over."""
    try:
        return arena.begin_write(slot, generation)
    except StaleGenerationError:
        found = arena.read(slot)
        is_open = found.verdict is HeaderVerdict.WRITING and found.generation == generation
        return arena.payload(slot) if is_open else None


async def main(socket: Path, engine: str, row_bytes: int, number: int, ranks: int) -> None:
    """Serve until the input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    shard_bytes = row_bytes // ranks
    regions = ((Region(0, shard_bytes, shard_bytes),),)
    async with RankLink(socket, EngineId(engine), 0, number, None, regions) as link:
        rank = Rank(row_bytes, number, ranks)
        while line := await reader.readline():
            print(rank.obey(link.arena, json.loads(line)), flush=True)


asyncio.run(main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6])))
