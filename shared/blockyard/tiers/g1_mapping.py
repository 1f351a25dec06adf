"""KV memory of one engine, mapped by descriptor, with the guard words that tell when a block was reused.

The engine adds 1 to a block's guard before it rewrites, moves or frees the block. A copy out of engine memory is good
only if the guards before and after the copy equal those the row was registered with. Every rank of the engine brings
memory of its own; where pages and shards of a row lie is in ``core.kv_groups``.
Invariants: guards are read-only here; no page of any region reaches beyond the memory of its rank; only memory that
cannot shrink any more is mapped, since an access behind a cut would kill this process.
Threading: any number of readers; the job decides who writes a block. Views that are still referenced stay valid after
``close``; the memory goes when the last of them does.
"""

import fcntl
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from blockyard.core.errors import LayoutMismatchError, UnsealedMemoryError
from blockyard.core.kv_groups import NO_PAGE, Region
from blockyard.core.vocabulary import GroupId, Guard
from blockyard.tiers.checksum import ByteArray
from blockyard.wire.worker_channel import GroupLayout, MapEngine, RankInfo

GUARD_BYTES: Final = 8
MOST_BLOCKS: Final = NO_PAGE
"""Numbers of blocks are below the one that means no block."""
PageColumn = NDArray[np.uint32]
GuardColumn = NDArray[np.uint64]


@final
@dataclass(frozen=True, slots=True)
class GroupPlaces:
    """Where the rows of one group lie."""

    pages_per_row: int
    page_bytes: int
    """Bytes of one engine block in one shard: one page of every region."""
    shards: tuple[tuple[int, ...], ...]
    """Per shard the ranks that hold it; it is read from the first and written to all."""
    regions: tuple[tuple[Region, ...], ...]
    """Per rank."""

    @property
    def row_bytes(self) -> int:
        """Payload bytes of a row."""
        return self.page_bytes * self.pages_per_row * len(self.shards)


@final
class G1Mapping:
    """Mapped memory and guards of one engine; keeps no descriptor, the caller closes its own."""

    def __init__(self, request: MapEngine, fds: Sequence[int]) -> None:
        """Map the memory.

        Args:
            request: what the engine's memory looks like.
            fds: descriptor of the guards, for which reading is enough, then those of the memory of each rank.

        Raises:
            LayoutMismatchError: sizes that cannot be, or a descriptor that is too short or cannot be mapped.
            UnsealedMemoryError: a descriptor is no memfd that is sealed against shrinking.
        """
        if not 1 <= request.blocks <= MOST_BLOCKS or not request.ranks or len(fds) != 1 + len(request.ranks):
            raise LayoutMismatchError(
                "impossible engine memory", blocks=request.blocks, ranks=len(request.ranks), descriptors=len(fds)
            )
        if [layout.group for layout in request.groups] != list(range(len(request.groups))) or not request.groups:
            raise LayoutMismatchError(
                "groups are numbered from 0", groups=str([layout.group for layout in request.groups])
            )
        self.blocks: Final = request.blocks
        self.ranks: Final = len(request.ranks)
        self.groups: Final = {
            GroupId(layout.group): _places(index, layout, request) for index, layout in enumerate(request.groups)
        }
        guards = _map(fds[0], request.blocks * GUARD_BYTES, mmap.PROT_READ, "guards")
        self._guards: GuardColumn = guards.view(np.uint64)
        self._memories = tuple(
            _map(fd, rank.memory_bytes, mmap.PROT_READ | mmap.PROT_WRITE, f"rank {number}")
            for number, (fd, rank) in enumerate(zip(fds[1:], request.ranks, strict=True))
        )

    def places(self, group: GroupId) -> GroupPlaces:
        """Where the rows of a group lie.

        Raises:
            LayoutMismatchError: the engine has no such group.
        """
        places = self.groups.get(group)
        if places is None:
            raise LayoutMismatchError("the engine has no such group", group=group, groups=len(self.groups))
        return places

    def memory(self, rank: int) -> ByteArray:
        """All memory of one rank as a writable view."""
        return self._memories[rank]

    def guard(self, index: int) -> Guard:
        """Guard of one block now."""
        return Guard(int(self._guards[index]))

    def guards_are(self, pages: PageColumn, guards: GuardColumn) -> bool:
        """Whether the guards of these blocks, all below ``blocks``, are these now."""
        return bool(np.array_equal(self._guards[pages], guards))

    def close(self) -> None:
        """Forget the memory; harmless when repeated."""
        self._guards = np.empty(0, np.uint64)
        self._memories = ()

    def __enter__(self) -> Self:
        """Close the mapping at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the mapping."""
        self.close()


def _places(index: int, layout: GroupLayout, request: MapEngine) -> GroupPlaces:
    regions = tuple(_regions(index, layout, number, rank, request) for number, rank in enumerate(request.ranks))
    pages = [[region.page_bytes for region in of_rank] for of_rank in regions]
    if layout.pages_per_row < 1 or not pages[0] or any(of_rank != pages[0] for of_rank in pages):
        raise LayoutMismatchError(
            "a row has pages, and as many bytes of it lie in every rank", group=layout.group, pages=layout.pages_per_row
        )
    ranks = range(len(request.ranks))
    shards = (tuple(ranks),) if layout.replicated else tuple((rank,) for rank in ranks)
    return GroupPlaces(layout.pages_per_row, sum(pages[0]), shards, regions)


def _regions(index: int, layout: GroupLayout, number: int, rank: RankInfo, request: MapEngine) -> tuple[Region, ...]:
    if len(rank.regions) != len(request.groups):
        raise LayoutMismatchError("a rank has regions for every group", rank=number, groups=len(rank.regions))
    regions = tuple(Region(info.offset_bytes, info.stride_bytes, info.page_bytes) for info in rank.regions[index])
    for region in regions:
        end = region.offset_bytes + (request.blocks - 1) * region.stride_bytes + region.page_bytes
        whole = 0 <= region.offset_bytes and 1 <= region.page_bytes <= region.stride_bytes <= rank.memory_bytes
        if not whole or end > rank.memory_bytes:
            raise LayoutMismatchError(
                "a region reaches beyond the memory of its rank",
                group=layout.group,
                rank=number,
                offset=region.offset_bytes,
                stride=region.stride_bytes,
                page=region.page_bytes,
                memory=rank.memory_bytes,
            )
    return regions


def _map(fd: int, size: int, protection: int, name: str) -> ByteArray:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise UnsealedMemoryError(memory=name, reason=str(error.strerror)) from error
    if not seals & fcntl.F_SEAL_SHRINK:
        raise UnsealedMemoryError(memory=name)
    try:
        found = os.fstat(fd).st_size
        if found < size:
            raise LayoutMismatchError(
                "the engine's memory is shorter than announced", memory=name, need=size, found=found
            )
        memory: ByteArray = np.frombuffer(mmap.mmap(fd, size, mmap.MAP_SHARED, protection), np.uint8)
    except OSError as error:
        raise LayoutMismatchError("cannot map the engine's memory", memory=name, reason=str(error.strerror)) from error
    return memory
