"""The items of a job as values: the packed columns of the wire, decoded once.

Invariants: the columns were checked when the job was accepted, so every column that a kind needs has one entry per
item, and one per page where it names engine blocks. Threading: frozen values.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blockyard.core.errors import RequestError
from blockyard.core.vocabulary import DIGEST_BYTES, KEY_BYTES, ChainDigest, ContentKey, Generation, JobKind
from blockyard.tiers.g1_mapping import GuardColumn, PageColumn
from blockyard.wire.worker_channel import Items, Job


@dataclass(frozen=True, slots=True)
class JobItem:
    """One block of a job between slots.

    Attributes:
        index: place of the item in its job.
        digest: chain digest of the block.
        parent: content key of the block before it in the chain.
        position: place in the chain.
        source: slot that is read.
        source_mark: generation that the source must have.
        target: slot that is written.
        target_mark: granted generation of the target.
    """

    index: int
    digest: ChainDigest
    parent: ContentKey
    position: int
    source: int
    source_mark: int
    target: int
    target_mark: int

    @property
    def grant(self) -> Generation:
        """Granted generation of the target."""
        return Generation(self.target_mark)


@dataclass(frozen=True, slots=True)
class RowItem:
    """One row of a job between engine memory and the arena.

    Attributes:
        index: place of the item in its job.
        digest: chain digest of the block.
        parent: content key of the block before it in the chain.
        position: place in the chain.
        slot: slot of the arena.
        generation: granted generation of a slot that is written, or the one that a slot that is read must have.
        pages: engine blocks of the row, ``NO_PAGE`` for parts that are left out.
        guards: guard values that they must have.
    """

    index: int
    digest: ChainDigest
    parent: ContentKey
    position: int
    slot: int
    generation: Generation
    pages: PageColumn
    guards: GuardColumn

    @property
    def source_mark(self) -> int:
        """Generation of a slot that is read."""
        return self.generation

    @property
    def target(self) -> int:
        """Slot that is written."""
        return self.slot

    @property
    def target_mark(self) -> int:
        """Generation granted to a slot that is written."""
        return self.generation


@dataclass(frozen=True, slots=True)
class SealItem:
    """One slot that ranks of an engine have written, and the names its header gets."""

    index: int
    digest: ChainDigest
    parent: ContentKey
    position: int
    target: int
    target_mark: int
    """Generation under which the ranks wrote."""


@dataclass(frozen=True, slots=True)
class SourceSlot:
    """One slot that ranks of an engine are to read, and the block it must hold."""

    index: int
    digest: ChainDigest
    source: int
    source_mark: int
    """Generation that it must have."""


@dataclass(frozen=True, slots=True)
class FreeItem:
    """One slot whose header is to become FREE or BAD."""

    index: int
    slot: int
    generation: Generation


def copy_items(items: Items) -> list[JobItem]:
    """Items of a job that moves blocks between slots."""
    positions = _integers(items.positions, "<u4")
    sources = _integers(items.src_index, "<u4")
    source_marks = _integers(items.src_generation, "<u8")
    targets = _integers(items.dst_index, "<u4")
    target_marks = _integers(items.dst_generation, "<u8")
    return [
        JobItem(
            index=index,
            digest=_digest(items, index),
            parent=_parent(items, index),
            position=int(positions[index]),
            source=int(sources[index]),
            source_mark=int(source_marks[index]),
            target=int(targets[index]),
            target_mark=int(target_marks[index]),
        )
        for index in range(items.count)
    ]


def row_items(job: Job, pages_per_row: int) -> list[RowItem]:
    """Items of a job that moves rows between engine memory and the arena.

    Raises:
        RequestError: a row of the job has another number of pages than rows of its group.
    """
    items = job.items
    if job.kind is JobKind.G1_G2:
        engine, slots = (items.src_index, items.src_generation), (items.dst_index, items.dst_generation)
    else:
        engine, slots = (items.dst_index, items.dst_generation), (items.src_index, items.src_generation)
    pages, guards = np.frombuffer(engine[0], "<u4"), np.frombuffer(engine[1], "<u8")
    if len(pages) != items.count * pages_per_row or len(guards) != len(pages):
        raise RequestError(
            "a row has as many pages as its group says",
            column="src_index" if job.kind is JobKind.G1_G2 else "dst_index",
            pages=len(pages),
            items=items.count,
            per_row=pages_per_row,
        )
    positions = _integers(items.positions, "<u4")
    indexes, generations = _integers(slots[0], "<u4"), _integers(slots[1], "<u8")
    return [
        RowItem(
            index=index,
            digest=_digest(items, index),
            parent=_parent(items, index),
            position=int(positions[index]),
            slot=int(indexes[index]),
            generation=Generation(int(generations[index])),
            pages=pages[index * pages_per_row : (index + 1) * pages_per_row],
            guards=guards[index * pages_per_row : (index + 1) * pages_per_row],
        )
        for index in range(items.count)
    ]


def seal_items(items: Items) -> list[SealItem]:
    """Items of a ``SEAL`` job."""
    positions, slots = _integers(items.positions, "<u4"), _integers(items.dst_index, "<u4")
    generations = _integers(items.dst_generation, "<u8")
    return [
        SealItem(
            index=index,
            digest=_digest(items, index),
            parent=_parent(items, index),
            position=int(positions[index]),
            target=int(slots[index]),
            target_mark=int(generations[index]),
        )
        for index in range(items.count)
    ]


def check_items(items: Items) -> list[SourceSlot]:
    """Items of a ``CHECK`` job."""
    slots, generations = _integers(items.src_index, "<u4"), _integers(items.src_generation, "<u8")
    return [
        SourceSlot(index, _digest(items, index), int(slots[index]), int(generations[index]))
        for index in range(items.count)
    ]


def free_items(items: Items) -> list[FreeItem]:
    """Items of a ``FREE`` job, which names only slots and their generations."""
    slots = _integers(items.dst_index, "<u4")
    generations = _integers(items.dst_generation, "<u8")
    return [FreeItem(index, int(slots[index]), Generation(int(generations[index]))) for index in range(items.count)]


def _digest(items: Items, index: int) -> ChainDigest:
    return ChainDigest(items.digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES])


def _parent(items: Items, index: int) -> ContentKey:
    return ContentKey(items.parents[index * KEY_BYTES : (index + 1) * KEY_BYTES])


def _integers(column: bytes, kind: str) -> NDArray[np.unsignedinteger]:
    return np.frombuffer(column, dtype=kind)
