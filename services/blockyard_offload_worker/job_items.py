"""The items of a job as values: the packed columns of the wire, decoded once.

Invariants: the columns were checked when the job was accepted, so every column that a kind needs has one entry per
item. Threading: frozen values.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blockyard.core.vocabulary import DIGEST_BYTES, KEY_BYTES, ChainDigest, ContentKey, Generation
from blockyard.wire.worker_channel import Items


@dataclass(frozen=True, slots=True)
class JobItem:
    """One block of a job.

    Attributes:
        index: place of the item in its job.
        digest: chain digest of the block.
        parent: content key of the block before it in the chain.
        position: place in the chain.
        source: engine block (G1) or slot (G2, G3) that is read.
        source_mark: guard value (G1) or generation (G2, G3) that the source must have.
        target: engine block or slot that is written.
        target_mark: guard value (G1) or granted generation (G2, G3) of the target.
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
        """Granted generation of a target in G2 or G3."""
        return Generation(self.target_mark)


@dataclass(frozen=True, slots=True)
class FreeItem:
    """One slot whose header is to become FREE or BAD."""

    index: int
    slot: int
    generation: Generation


def copy_items(items: Items) -> list[JobItem]:
    """Items of a job that moves blocks."""
    positions = _integers(items.positions, "<u4")
    sources = _integers(items.src_index, "<u4")
    source_marks = _integers(items.src_generation, "<u8")
    targets = _integers(items.dst_index, "<u4")
    target_marks = _integers(items.dst_generation, "<u8")
    return [
        JobItem(
            index=index,
            digest=ChainDigest(items.digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]),
            parent=ContentKey(items.parents[index * KEY_BYTES : (index + 1) * KEY_BYTES]),
            position=int(positions[index]),
            source=int(sources[index]),
            source_mark=int(source_marks[index]),
            target=int(targets[index]),
            target_mark=int(target_marks[index]),
        )
        for index in range(items.count)
    ]


def free_items(items: Items) -> list[FreeItem]:
    """Items of a ``FREE`` job, which names only slots and their generations."""
    slots = _integers(items.dst_index, "<u4")
    generations = _integers(items.dst_generation, "<u8")
    return [FreeItem(index, int(slots[index]), Generation(int(generations[index]))) for index in range(items.count)]


def _integers(column: bytes, kind: str) -> NDArray[np.unsignedinteger]:
    return np.frombuffer(column, dtype=kind)
