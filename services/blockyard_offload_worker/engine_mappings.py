"""The engine memories that this process has mapped, by the number the block-manager gave them.

An executor that this worker does not have is refused by name: an operator chose it, and another one in its place would
show in nothing but its speed.
Invariants: numbers are unique among the mapped ones; the worker server unmaps a number only when no job uses it.
Threading: event loop only; the mapped bytes are read and written by the copy thread. Copiers are opened in a thread,
since that may load a library.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from blockyard.core.errors import UnknownMappingError, UnsupportedOperationError
from blockyard.core.vocabulary import Executor
from blockyard.tiers.arena import Arena
from blockyard.tiers.g1_mapping import G1Mapping
from blockyard.wire.worker_channel import MapEngine
from blockyard_offload_worker.engine_copies import MappedEngine
from blockyard_offload_worker.g1_copier import G1Copier
from blockyard_offload_worker.mapped_copies import MappedCopies

CopierOpener = Callable[[G1Mapping, Arena], G1Copier]
"""Makes the copier of one engine, which moves its rows to and from slots of this arena; called in a thread."""
MAPPED_ONLY: Final[Mapping[Executor, CopierOpener]] = {Executor.MAPPED: lambda mapping, _: MappedCopies(mapping)}


class EngineMappings:
    """Table of mapped engine memories; owns them."""

    def __init__(self, openers: Mapping[Executor, CopierOpener] = MAPPED_ONLY) -> None:
        """Start with none; ``openers`` are the executors of this worker."""
        self._openers = {executor.value: opener for executor, opener in openers.items()}
        self._engines: dict[int, MappedEngine] = {}

    def __len__(self) -> int:
        """Number of mapped engine memories."""
        return len(self._engines)

    async def add(self, request: MapEngine, fds: Sequence[int], arena: Arena) -> None:
        """Map an engine under its number; one that had this number is unmapped. The descriptors stay the caller's.

        Raises:
            UnsupportedOperationError: no such executor, or it does not work here.
            LayoutMismatchError: sizes that cannot be, or a descriptor that is too short or cannot be mapped.
            UnsealedMemoryError: a descriptor is no memfd that is sealed against shrinking.
        """
        opener = self._openers.get(request.executor)
        if opener is None:
            raise UnsupportedOperationError(
                "the offload-worker has no such executor",
                executor=request.executor,
                known=", ".join(sorted(self._openers)),
            )
        mapping = G1Mapping(request, fds)
        engine = MappedEngine(mapping, await asyncio.to_thread(opener, mapping, arena))
        self.remove(request.mapping)
        self._engines[request.mapping] = engine

    def get(self, number: int) -> MappedEngine:
        """The engine with this number.

        Raises:
            UnknownMappingError: there is none.
        """
        engine = self._engines.get(number)
        if engine is None:
            raise UnknownMappingError("no such engine mapping", mapping=number)
        return engine

    def remove(self, number: int) -> None:
        """Unmap; nothing happens where there is no such number."""
        engine = self._engines.pop(number, None)
        if engine is not None:
            engine.close()

    def close(self) -> None:
        """Unmap everything. Idempotent."""
        for number in list(self._engines):
            self.remove(number)
