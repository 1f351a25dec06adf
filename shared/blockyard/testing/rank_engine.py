"""An engine as its worker sees it: guards and the memory of ranks, any layout, filled and read page by page.

The bytes of a page follow from the number of its block, its group, region and rank, so a wrong page shows.
Threading: values only.
"""

import os
from collections.abc import Sequence
from typing import Self, final

import numpy as np

from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.rank_memory import attach_message
from blockyard.connectors.sealed_memory import sealed_memory
from blockyard.core.kv_groups import NO_PAGE, Region
from blockyard.core.vocabulary import EngineBlockId, EngineId, Executor
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.g1_mapping import G1Mapping
from blockyard.wire.worker_channel import GroupLayout, MapEngine, RankInfo

REPLICATED_RANK = 0
"""Ranks of a replicated group hold the bytes of this one."""


def map_request(memory: EngineMemory, mapping: int = 1, *, executor: str = Executor.MAPPED) -> MapEngine:
    """How a block-manager maps an engine of one process."""
    attach = attach_message(EngineId("e"), 0, 0, memory.rank.memory_bytes, memory.rank.regions)
    return MapEngine(
        mapping=mapping,
        blocks=memory.blocks,
        groups=(GroupLayout(group=0, pages_per_row=1),),
        ranks=(RankInfo(memory_bytes=attach.memory_bytes, regions=attach.regions),),
        executor=executor,
    )


def map_fds(memory: EngineMemory) -> list[int]:
    """The descriptors that travel with ``map_request``; they stay the memory's."""
    return [memory.guards.fd, memory.rank.fd]


@final
class RankEngine:
    """Memory of an engine with several groups and ranks."""

    def __init__(
        self,
        blocks: int,
        groups: Sequence[GroupLayout],
        regions: Sequence[Sequence[Sequence[Region]]],
        *,
        executor: str = Executor.MAPPED,
    ) -> None:
        """Allocate what ``regions`` (per rank and group) need, and map it."""
        self.guards = EngineGuards(blocks)
        self._regions = regions
        sizes = [
            max(region.offset_bytes + blocks * region.stride_bytes for group in rank for region in group)
            for rank in regions
        ]
        self.fds = [sealed_memory("memory of a test", size) for size in sizes]
        infos = [
            attach_message(EngineId("e"), 0, number, size, rank)
            for number, (size, rank) in enumerate(zip(sizes, regions, strict=True))
        ]
        self.request = MapEngine(
            mapping=1,
            blocks=blocks,
            groups=tuple(groups),
            ranks=tuple(RankInfo(memory_bytes=info.memory_bytes, regions=info.regions) for info in infos),
            executor=executor,
        )
        self.mapping = G1Mapping(self.request, [self.guards.fd, *self.fds])

    def page(self, group: int, rank: int, region: int, block: int) -> ByteArray:
        """Writable bytes of one page."""
        place = self._regions[rank][group][region]
        start = place.offset_bytes + block * place.stride_bytes
        return self.mapping.memory(rank)[start : start + place.page_bytes]

    def regions(self, group: int, rank: int) -> int:
        """Number of regions of a group in a rank."""
        return len(self._regions[rank][group])

    def compute(self, group: int, blocks: Sequence[int], name: int) -> None:
        """Fill these blocks in all ranks with the bytes of ``name``."""
        for rank in range(self.mapping.ranks):
            for index, block in enumerate(blocks):
                for region in range(self.regions(group, rank)):
                    page = self.page(group, rank, region, block)
                    page[:] = self.expected_page(group, rank, region, name, index)

    def expected_page(self, group: int, rank: int, region: int, name: int, index: int) -> ByteArray:
        """Bytes that page ``index`` of the row ``name`` must have."""
        size = self._regions[rank][group][region].page_bytes
        writer = REPLICATED_RANK if self.request.groups[group].replicated else rank
        seed = [group, writer, region, name, index]
        return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)

    def expected_row(self, group: int, name: int) -> bytes:
        """Payload of the row ``name``, as ``core.kv_groups`` lays it out."""
        layout = self.request.groups[group]
        writers = (REPLICATED_RANK,) if layout.replicated else range(self.mapping.ranks)
        return b"".join(
            self.expected_page(group, rank, region, name, index).tobytes()
            for rank in writers
            for index in range(layout.pages_per_row)
            for region in range(self.regions(group, rank))
        )

    def wrong_pages(self, group: int, blocks: Sequence[int], name: int) -> int:
        """Pages of these blocks, in all ranks, that are not those of the row ``name``; ``NO_PAGE`` is left out."""
        return sum(
            not np.array_equal(
                self.page(group, rank, region, block), self.expected_page(group, rank, region, name, index)
            )
            for rank in range(self.mapping.ranks)
            for index, block in enumerate(blocks)
            if block != NO_PAGE
            for region in range(self.regions(group, rank))
        )

    def raise_guard(self, block: int) -> None:
        """The engine reuses a block."""
        self.guards.raise_guards([EngineBlockId(block)])

    def close(self) -> None:
        """Give everything up."""
        self.mapping.close()
        self.guards.close()
        for fd in self.fds:
            os.close(fd)

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()
