"""Blocks to and from the disk tier against bare O_DIRECT system calls on the same blocks."""

import asyncio
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench.errors import WrongBytesError
from bench.measure import ROUNDS, Contest, Measure, skipped
from blockyard.core.vocabulary import Epoch, ItemStatus
from blockyard.testing.byte_patterns import header_of, pattern
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoveOutcome, Mover, MoverPreference
from blockyard.tiers.checksum import payload_checksum
from blockyard.tiers.g3_slab.slab import Slab, StoreItem
from blockyard.tiers.open_mover import open_mover

BLOCKS: Final = 256
BLOCK_BYTES: Final = 128 << 10
BATCH: Final = 64
_SLOTS: Final = BLOCKS * (ROUNDS + 1)
"""Every round stores into slots of its own: a slot that holds a block has to be freed before."""
_MIB: Final = BLOCKS * BLOCK_BYTES / (1 << 20)
_STORE, _READ = "store", "read"
_RAW_STORE: Final = "O_DIRECT pwrite, block by block, then one fdatasync"
_RAW_READ: Final = "O_DIRECT pread, block by block, nothing checked"


def run(case: str) -> Iterator[Measure]:
    """MiB per second of durable stores and of checked reads of 256 blocks of 128 KiB, against pwrite and pread."""
    with tempfile.TemporaryDirectory(prefix="blockyard-bench-") as name, asyncio.Runner() as runner:
        folder = Path(name)
        with Arena.create(BLOCKS, BLOCK_BYTES) as arena:
            slab = Slab.open(folder, _SLOTS, BLOCK_BYTES, worker_epoch=Epoch(1))
            try:
                chosen = runner.run(open_mover(MoverPreference.AUTO, arena, folder=folder, direct=slab.direct))
                try:
                    if not slab.direct or not chosen.mover.name.startswith("nixl"):
                        reason = slab.direct_obstacle or chosen.reason
                        yield skipped(case, _STORE, _RAW_STORE, reason)
                        yield skipped(case, _READ, _RAW_READ, reason)
                    else:
                        yield from _contests(case, runner, _Tier(arena, slab, chosen.mover), folder)
                finally:
                    runner.run(chosen.mover.close())
            finally:
                runner.run(slab.close())


def _contests(case: str, runner: asyncio.Runner, tier: "_Tier", folder: Path) -> Iterator[Measure]:
    with _RawFile(folder / "raw") as raw:
        yield Contest(
            measure=_STORE, unit="MiB", ours=lambda: runner.run(tier.store()), theirs=raw.write, against=_RAW_STORE
        ).run(case)
        yield Contest(
            measure=_READ, unit="MiB", ours=lambda: runner.run(tier.read()), theirs=raw.read, against=_RAW_READ
        ).run(case)
        runner.run(tier.check())
        raw.check()


@dataclass(slots=True)
class _Tier:
    """The disk tier as the offload-worker drives it."""

    arena: Arena
    slab: Slab
    mover: Mover
    stored: int = 0

    async def store(self) -> float:
        """Store all blocks of the arena, in jobs of 64; a block counts when it is durable."""
        if not self.stored:
            self._fill()
        first = self.stored
        self.stored += BLOCKS
        jobs = [range(start, start + BATCH) for start in range(0, BLOCKS, BATCH)]
        for statuses in await asyncio.gather(*(self.slab.store(self.mover, self._items(job, first)) for job in jobs)):
            _require(all(status is ItemStatus.OK for status in statuses), "a store failed")
        return _MIB

    async def read(self) -> float:
        """Read the blocks stored last into the arena, in jobs of 64, and compare their checksums."""
        first = self.stored - BLOCKS
        jobs = [np.arange(start, start + BATCH, dtype=np.int32) for start in range(0, BLOCKS, BATCH)]
        ends = await asyncio.gather(*(self.mover.read(self.slab.region, job, job + np.int32(first)) for job in jobs))
        _require(all(outcome is MoveOutcome.DONE for end in ends for outcome in end), "a read failed")
        for block in range(BLOCKS):
            header = self.slab.read(first + block).header
            _require(payload_checksum(self.arena.payload(block).data) == header.checksum, "a checksum differs")
        return _MIB

    async def check(self) -> None:
        """Every byte that is read is the one that was stored."""
        self.arena.strides(0, BLOCKS)[:] = 0
        await self.read()
        for block in range(BLOCKS):
            _require(np.array_equal(self.arena.payload(block), pattern(block, BLOCK_BYTES)), "a block differs")

    def _fill(self) -> None:
        for block in range(BLOCKS):
            self.arena.payload(block)[:] = pattern(block, BLOCK_BYTES)

    def _items(self, blocks: Sequence[int], first: int) -> list[StoreItem]:
        return [
            StoreItem(block, header_of(block, self.arena.payload(block), file_id=self.slab.slab_id, slot=first + block))
            for block in blocks
        ]


class _RawFile:
    """A preallocated file with one page-aligned buffer per block; use as a context manager."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_CLOEXEC)
        os.posix_fallocate(self._fd, 0, _SLOTS * BLOCK_BYTES)
        self._memory = mmap.mmap(-1, BLOCKS * BLOCK_BYTES)
        self._buffers = [memoryview(self._memory)[start : start + BLOCK_BYTES] for start in self._starts()]
        for block, buffer in enumerate(self._buffers):
            buffer[:] = pattern(block, BLOCK_BYTES).data
        self._written = 0

    def write(self) -> float:
        """Write all blocks to a place that was not written before."""
        offset = self._written * BLOCK_BYTES
        self._written += BLOCKS
        for start, buffer in zip(self._starts(), self._buffers, strict=True):
            _require(os.pwrite(self._fd, buffer, offset + start) == BLOCK_BYTES, "a short write")
        os.fdatasync(self._fd)
        return _MIB

    def read(self) -> float:
        """Read the blocks written last."""
        offset = (self._written - BLOCKS) * BLOCK_BYTES
        for start, buffer in zip(self._starts(), self._buffers, strict=True):
            _require(os.preadv(self._fd, [buffer], offset + start) == BLOCK_BYTES, "a short read")
        return _MIB

    def check(self) -> None:
        """Every byte that is read is the one that was written."""
        self._memory[:] = bytes(len(self._memory))
        self.read()
        for block, buffer in enumerate(self._buffers):
            _require(buffer == pattern(block, BLOCK_BYTES).data, "a block differs")

    def __enter__(self) -> "_RawFile":
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)
        for buffer in self._buffers:
            buffer.release()
        self._memory.close()

    def _starts(self) -> range:
        return range(0, BLOCKS * BLOCK_BYTES, BLOCK_BYTES)


def _require(holds: bool, words: str) -> None:
    if not holds:
        raise WrongBytesError(words)
