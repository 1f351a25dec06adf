"""Ranks of engines that are attached, each for as long as its connection lives, whether their engine is there or not.

::

    connection ──AttachRank──► attached, waits for the hello of its engine ──all ranks──► the engine's memory is mapped
                                  └── connection ends: the rank is lost, the engine is unmapped until it is back

Invariants: one attachment per (engine, dp rank, rank); an attached rank's descriptor is open.
Threading: one event loop.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from blockyard.core.vocabulary import EngineId
from blockyard.runtime.rpc.session import RpcSession
from blockyard.wire.connector_channel import AttachRank
from blockyard.wire.worker_channel import RegionInfo

EngineKey = tuple[EngineId, int]
"""Engine and data-parallel rank."""
MemoryId = tuple[int, int, tuple[tuple[RegionInfo, ...], ...]]


@dataclass(frozen=True, slots=True, eq=False)
class AttachedRank:
    """One rank with its memory; compared by identity."""

    rpc: RpcSession
    request: AttachRank
    fd: int | None
    """Its memory; None where the rank keeps it."""

    @property
    def engine(self) -> EngineKey:
        """The engine that it belongs to."""
        return EngineId(self.request.engine), self.request.dp_rank

    @property
    def memory(self) -> MemoryId | None:
        """What tells its memory from any other: the file, and where the pages lie in it."""
        if self.fd is None:
            return None
        found = os.fstat(self.fd)
        return found.st_dev, found.st_ino, self.request.regions


class EngineRanks:
    """All attached ranks."""

    def __init__(self) -> None:
        """Start without ranks."""
        self._ranks: Final[dict[EngineKey, dict[int, AttachedRank]]] = {}

    def of(self, engine: EngineKey) -> dict[int, AttachedRank]:
        """Attached ranks of an engine, by their numbers."""
        return dict(self._ranks.get(engine, {}))

    def on_connection(self, rpc: RpcSession) -> Iterator[AttachedRank]:
        """Ranks whose life is this connection."""
        return iter([rank for ranks in self._ranks.values() for rank in ranks.values() if rank.rpc is rpc])

    def attach(self, rank: AttachedRank) -> None:
        """Keep a rank; an earlier attachment of it must have been dropped."""
        self._ranks.setdefault(rank.engine, {})[rank.request.rank] = rank

    def drop(self, rank: AttachedRank) -> bool:
        """Forget a rank and close its descriptor; returns whether it was attached."""
        ranks = self._ranks.get(rank.engine, {})
        if ranks.get(rank.request.rank) is not rank:
            return False
        del ranks[rank.request.rank]
        if not ranks:
            del self._ranks[rank.engine]
        if rank.fd is not None:
            os.close(rank.fd)
        return True

    def close(self) -> None:
        """Close all descriptors."""
        for ranks in list(self._ranks.values()):
            for rank in list(ranks.values()):
                self.drop(rank)
