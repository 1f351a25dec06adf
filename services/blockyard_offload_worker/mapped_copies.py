"""The executor ``mapped``: plain copies between an engine's memory and the arena, both mapped by this process.

Regions of equal size at equal distances are moved by one strided copy per page, in strips that fit the cache::

    page i in G1     region 0 · · · region 1 · · · region 2 · · ·        (one strip: n regions, a part of each if large)
    payload          [region 0][region 1][region 2]

Threading: as ``g1_copier``; holds no state between calls.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np

from blockyard.core.kv_groups import NO_PAGE, Region
from blockyard.core.vocabulary import GroupId
from blockyard.tiers.checksum import COPY_CHUNK_BYTES, ByteArray
from blockyard.tiers.g1_mapping import G1Mapping, GroupPlaces, PageColumn


@dataclass(frozen=True, slots=True)
class _Strip:
    """Bytes that one copy moves, in every page of a rank."""

    pages: ByteArray
    """Blocks × regions × bytes."""
    bytes: int


@dataclass(frozen=True, slots=True)
class _Rows:
    """How rows of one group are moved: per shard the strips of each rank that holds it."""

    places: GroupPlaces
    shards: tuple[tuple[tuple[_Strip, ...], ...], ...]


@final
class MappedCopies:
    """``G1Copier`` by plain copies."""

    def __init__(self, mapping: G1Mapping) -> None:
        """Move rows of ``mapping``, which stays the caller's."""
        self._rows = {group: _rows_of(mapping, places) for group, places in mapping.groups.items()}

    def gather(self, group: GroupId, pages: PageColumn, payload: ByteArray) -> Iterator[ByteArray]:
        """See ``G1Copier``."""
        start = 0
        for ranks in self._rows[group].shards:
            for page in pages:
                for strip in ranks[0]:
                    piece = payload[start : start + strip.bytes]
                    source = strip.pages[page]
                    np.copyto(piece.reshape(source.shape), source)
                    start += strip.bytes
                    yield piece

    def scatter(self, group: GroupId, pages: PageColumn, payload: ByteArray) -> Iterator[ByteArray]:
        """See ``G1Copier``."""
        start = 0
        for ranks in self._rows[group].shards:
            for page in pages:
                for strips in zip(*ranks, strict=True):
                    piece = payload[start : start + strips[0].bytes]
                    if page != NO_PAGE:
                        for strip in strips:
                            target = strip.pages[page]
                            np.copyto(target, piece.reshape(target.shape))
                    start += strips[0].bytes
                    yield piece

    def close(self) -> None:
        """Let go of the engine's memory."""
        self._rows = {}


def _rows_of(mapping: G1Mapping, places: GroupPlaces) -> _Rows:
    # Equal places in all ranks make equal strips; where one rank differs, regions are moved one by one in all of them.
    uniform = len({_distances(regions) for regions in places.regions}) == 1
    ranks = [
        _strips(mapping.memory(rank), mapping.blocks, regions, uniform=uniform)
        for rank, regions in enumerate(places.regions)
    ]
    return _Rows(places, tuple(tuple(ranks[rank] for rank in shard) for shard in places.shards))


def _distances(regions: Sequence[Region]) -> tuple[tuple[int, int, int], ...]:
    """What makes regions neighbours in a strip: the step from each to the next, their strides and sizes."""
    return tuple(
        (region.offset_bytes - regions[0].offset_bytes, region.stride_bytes, region.page_bytes) for region in regions
    )


def _strips(memory: ByteArray, blocks: int, regions: Sequence[Region], *, uniform: bool) -> tuple[_Strip, ...]:
    strips: list[_Strip] = []
    start = 0
    while start < len(regions):
        most = max(1, COPY_CHUNK_BYTES // regions[start].page_bytes) if uniform else 1
        stop = _alike(regions, start, most)
        strips += _strip_parts(memory, blocks, regions[start:stop])
        start = stop
    return tuple(strips)


def _alike(regions: Sequence[Region], start: int, most: int) -> int:
    """End of the regions from ``start`` on, at most ``most``, that one strided view holds."""
    stop = start + 1
    step = None
    for last, region in pairwise(regions[start : start + most]):
        distance = region.offset_bytes - last.offset_bytes
        same_size = (region.stride_bytes, region.page_bytes) == (last.stride_bytes, last.page_bytes)
        if not same_size or distance < 0 or step not in (None, distance):
            break
        step = distance
        stop += 1
    return stop


def _strip_parts(memory: ByteArray, blocks: int, regions: Sequence[Region]) -> Iterator[_Strip]:
    first = regions[0]
    step = regions[1].offset_bytes - first.offset_bytes if len(regions) > 1 else first.page_bytes
    for at in range(0, first.page_bytes, COPY_CHUNK_BYTES):
        size = min(COPY_CHUNK_BYTES, first.page_bytes - at)
        pages = np.lib.stride_tricks.as_strided(
            memory[first.offset_bytes + at :], (blocks, len(regions), size), (first.stride_bytes, step, 1)
        )
        yield _Strip(pages, len(regions) * size)
