"""The executor ``nixl``: the copies of ``mapped_copies``, made by NIXL's UCX from this process to itself.

One request per shard of a row: all its pages in one list, and where several ranks hold the shard, all of theirs::

    gather   READ   page i, region j of the first rank  ->  their place in the payload
    scatter  WRITE  their place in the payload          ->  page i, region j of every rank

NIXL knows the memory of every rank and the arena as long as an engine is mapped. It is loaded with the first engine
that asks for it; where it does not work, that engine is refused.
Threading: rows are moved by the copy thread; engines come and go from any thread, one at a time. Opening the first
takes half a second.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from blockyard.core.errors import TransferError, UnsupportedOperationError
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import Executor, GroupId
from blockyard.tiers.arena import Arena
from blockyard.tiers.block_moves import Direction
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.g1_mapping import G1Mapping, GroupPlaces, PageColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from blockyard.tiers.nixl.ucx_agent import UcxMemory
    from blockyard.tiers.nixl.ucx_copies import UcxCopies


@dataclass(slots=True, eq=False)
class _Registered:
    """The arena as NIXL knows it, and for how many engines."""

    arena: Arena
    memory: "UcxMemory"
    engines: int = 0


@final
class NixlEngines:
    """What the engines of this process that are served by NIXL share: its agent, and the arena's registration."""

    def __init__(self) -> None:
        """Begin without NIXL; the first engine brings it."""
        self._lock = threading.RLock()
        self._copies: UcxCopies | None = None
        self._arenas: dict[bytes, _Registered] = {}

    def open(self, mapping: G1Mapping, arena: Arena) -> "NixlCopies":
        """Move rows between ``mapping`` and ``arena``; both stay the caller's.

        Raises:
            UnsupportedOperationError: NIXL or its UCX does not work here, or refuses the memory; says why.
        """
        try:
            with self._lock:
                copies = self._copies = self._copies or _open_copies()
                return NixlCopies(self, copies, mapping, self._take(copies, arena))
        except TransferError as error:
            raise UnsupportedOperationError(
                "NIXL does not work here", executor=Executor.NIXL.value, reason=error.finding
            ) from error

    def leave(self, arena: Arena) -> None:
        """An engine needs the arena no more."""
        with self._lock:
            registered = self._arenas[arena.arena_id]
            registered.engines -= 1
            if not registered.engines and self._copies is not None:
                del self._arenas[arena.arena_id]
                self._copies.forget(registered.memory)

    def close(self) -> None:
        """Let NIXL go; all engines were closed before. Idempotent."""
        with self._lock:
            copies, self._copies = self._copies, None
            self._arenas.clear()
        if copies is not None:
            copies.close()

    def _take(self, copies: "UcxCopies", arena: Arena) -> Arena:
        registered = self._arenas.get(arena.arena_id)
        if registered is None:
            registered = _Registered(arena, copies.register(arena.strides(0, arena.slots)))
            self._arenas[arena.arena_id] = registered
        registered.engines += 1
        return arena


@dataclass(frozen=True, slots=True)
class _Rows:
    """How rows of one group are moved: numbers only, so that a row costs a handful of array operations."""

    places: GroupPlaces
    bases: "tuple[NDArray[np.uint64], ...]"
    """Per rank the address of page 0 of each region."""
    strides: "tuple[NDArray[np.uint64], ...]"
    sizes: "NDArray[np.uint64]"
    starts: "NDArray[np.uint64]"
    """Where each region's page begins among the bytes of one engine block."""


@final
class NixlCopies:
    """``G1Copier`` by NIXL. Made by ``NixlEngines.open``."""

    def __init__(self, engines: NixlEngines, copies: "UcxCopies", mapping: G1Mapping, arena: Arena) -> None:
        """Make the memory of the engine known; use ``NixlEngines.open``.

        Raises:
            TransferError: NIXL refused memory; nothing is left behind.
        """
        self._engines = engines
        self._copies = copies
        self._arena: Arena | None = arena
        self._memories: list[UcxMemory] = []
        try:
            for rank in range(mapping.ranks):
                self._memories.append(copies.register(mapping.memory(rank)))
        except TransferError:
            self.close()
            raise
        self._rows = {group: _rows_of(places, self._memories) for group, places in mapping.groups.items()}

    def gather(self, group: GroupId, pages: PageColumn, payload: ByteArray) -> Iterator[ByteArray]:
        """See ``G1Copier``.

        Raises:
            TransferError: NIXL failed; no byte moves any more.
        """
        rows = self._rows[group]
        for piece, ranks in _shards(rows.places, payload):
            at_arena, sizes = _arena_parts(rows, np.arange(len(pages)), piece)
            self._copies.copy(Direction.READ, at_arena, _engine_parts(rows, ranks[0], pages), sizes)
            yield piece

    def scatter(self, group: GroupId, pages: PageColumn, payload: ByteArray) -> Iterator[ByteArray]:
        """See ``G1Copier``.

        Raises:
            TransferError: NIXL failed; no byte moves any more.
        """
        rows = self._rows[group]
        wanted = np.flatnonzero(pages != NO_PAGE)
        for piece, ranks in _shards(rows.places, payload):
            at_arena, sizes = _arena_parts(rows, wanted, piece)
            at_engine = [_engine_parts(rows, rank, pages[wanted]) for rank in ranks]
            every = len(ranks)
            self._copies.copy(
                Direction.WRITE, np.tile(at_arena, every), np.concatenate(at_engine), np.tile(sizes, every)
            )
            yield piece

    def close(self) -> None:
        """Let go of the engine's memory. Idempotent."""
        for memory in self._memories:
            self._copies.forget(memory)
        self._memories = []
        self._rows = {}
        arena, self._arena = self._arena, None
        if arena is not None:
            self._engines.leave(arena)


def _open_copies() -> "UcxCopies":
    try:
        # Imported here: the SDK is optional and takes a quarter of a second to load.
        from blockyard.tiers.nixl.ucx_copies import UcxCopies
    except ImportError as error:
        raise TransferError("nixl_cu12 cannot be imported", reason=str(error)) from error
    return UcxCopies.open()


def _rows_of(places: GroupPlaces, memories: "Sequence[UcxMemory]") -> _Rows:
    sizes = np.array([region.page_bytes for region in places.regions[0]], np.uint64)
    return _Rows(
        places,
        tuple(
            np.array([memory.address + region.offset_bytes for region in regions], np.uint64)
            for memory, regions in zip(memories, places.regions, strict=True)
        ),
        tuple(np.array([region.stride_bytes for region in regions], np.uint64) for regions in places.regions),
        sizes,
        np.cumsum(sizes, dtype=np.uint64) - sizes,
    )


def _shards(places: GroupPlaces, payload: ByteArray) -> Iterator[tuple[ByteArray, tuple[int, ...]]]:
    """Each shard's part of a payload, with the ranks that hold it."""
    size = places.page_bytes * places.pages_per_row
    for number, ranks in enumerate(places.shards):
        yield payload[number * size : (number + 1) * size], ranks


def _engine_parts(rows: _Rows, rank: int, pages: PageColumn) -> "NDArray[np.uint64]":
    """Addresses of the pages in every region of a rank, page by page."""
    return (rows.bases[rank] + pages.astype(np.uint64)[:, np.newaxis] * rows.strides[rank]).ravel()


def _arena_parts(
    rows: _Rows, places: "NDArray[np.intp]", shard: ByteArray
) -> "tuple[NDArray[np.uint64], NDArray[np.uint64]]":
    """Addresses of the pages at these places of a shard, region by region, and the bytes of each."""
    first = np.uint64(shard.ctypes.data)
    blocks = places.astype(np.uint64) * np.uint64(rows.places.page_bytes)
    return (first + blocks[:, np.newaxis] + rows.starts).ravel(), np.tile(rows.sizes, len(places))
