"""A pool full of distinct blocks in a process that has nothing else: what it costs in memory and in collections.

Blocks come as a node gets them: chains as digests off the wire, named, registered and let go in batches.
Invariants: what is counted is what the operating system holds resident for this process, above what it held with a
pool of one chain; collections are timed by the processor's time, so that other processes do not count.
Threading: one thread.
"""

import gc
import os
import random
import time
from typing import Any, Final

from bench.orders import serve
from blockyard.core.block_facts import StagedColumns
from blockyard.core.chain_run import ChainRun
from blockyard.core.eviction.base import PolicyFactory
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.eviction.tide import TidePolicy
from blockyard.core.identity import ModelIdentity
from blockyard.core.pool import BlockPool
from blockyard.core.vocabulary import DIGEST_BYTES, Tier

DEPTH: Final = 64
"""Blocks of a chain."""
BATCH: Final = 32
_POLICIES: Final[dict[str, PolicyFactory]] = {"lru": LruPolicy, "tide": TidePolicy}
_IDENTITY: Final = ModelIdentity(model="bench").digest()
_FULL: Final = 2
"""Generation of a collection that walks everything."""


class FilledPool:
    """One pool, filled by order."""

    def __init__(self) -> None:
        """Time every full collection from here on."""
        self._began = 0.0
        self._full: list[float] = []
        gc.callbacks.append(self._time_collection)

    def fill(self, policy: str, rows: int, evicted: int = 0) -> int:
        """Fill a pool; returns the bytes that this took.

        Args:
            policy: ``lru`` or ``tide``.
            rows: of the pool, all of them used.
            evicted: blocks beyond these, each for the first one in the order of eviction.
        """
        _register(BlockPool(Tier.G2, DEPTH, _POLICIES[policy]), DEPTH)
        gc.collect()
        before = _resident_bytes()
        self.pool = BlockPool(Tier.G2, rows, _POLICIES[policy])
        _register(self.pool, rows + evicted)
        if self.pool.inactive != rows:
            raise ValueError(f"{self.pool!r} is not full")
        gc.collect()
        return _resident_bytes() - before

    def full_collections(self, times: int) -> list[float]:
        """Processor seconds of every full collection since the start, and of so many more."""
        for _ in range(times):
            gc.collect()
        return self._full

    def _time_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        elif info["generation"] == _FULL:
            self._full.append(time.thread_time() - self._began)


def _register(pool: BlockPool, blocks: int) -> None:
    drawn = random.Random(0)
    for _ in range(blocks // DEPTH):
        run = ChainRun(drawn.randbytes(DEPTH * DIGEST_BYTES))
        for start in range(0, DEPTH, BATCH):
            columns = StagedColumns.of_run(run.slice(start, start + BATCH), _IDENTITY)
            pool.allocate(BATCH).blocks.stage(columns).register().blocks.release()


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    serve(FilledPool())
