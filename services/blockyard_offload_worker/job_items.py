"""The items of a job as values: the packed columns of the wire, decoded once and checked.

Invariants: every column that a kind needs has exactly one entry per item; a job that fails this is refused as a whole
before anything is touched. Threading: frozen values.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blockyard.core.errors import RequestError
from blockyard.core.vocabulary import DIGEST_BYTES, KEY_BYTES, ChainDigest, ContentKey, Generation, key_of
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
    def key(self) -> ContentKey:
        """Content key of the block."""
        return key_of(self.digest)

    @property
    def grant(self) -> Generation:
        """Granted generation of a target in G2 or G3."""
        return Generation(self.target_mark)


def copy_items(items: Items) -> list[JobItem]:
    """Items of a job that moves blocks.

    Raises:
        RequestError: a column has another length than the count of items says.
    """
    count = items.count
    digests = _fixed(items.digests, count, DIGEST_BYTES, "digests")
    parents = _fixed(items.parents, count, KEY_BYTES, "parents")
    positions = _integers(items.positions, count, "<u4", "positions")
    sources = _integers(items.src_index, count, "<u4", "src_index")
    source_marks = _integers(items.src_generation, count, "<u8", "src_generation")
    targets = _integers(items.dst_index, count, "<u4", "dst_index")
    target_marks = _integers(items.dst_generation, count, "<u8", "dst_generation")
    return [
        JobItem(
            index=index,
            digest=ChainDigest(digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]),
            parent=ContentKey(parents[index * KEY_BYTES : (index + 1) * KEY_BYTES]),
            position=int(positions[index]),
            source=int(sources[index]),
            source_mark=int(source_marks[index]),
            target=int(targets[index]),
            target_mark=int(target_marks[index]),
        )
        for index in range(count)
    ]


@dataclass(frozen=True, slots=True)
class FreeItem:
    """One slot whose header is to become FREE or BAD."""

    index: int
    slot: int
    generation: Generation


def free_items(items: Items) -> list[FreeItem]:
    """Items of a ``FREE`` job, which names only slots and their generations.

    Raises:
        RequestError: a column has another length than the count of items says.
    """
    slots = _integers(items.dst_index, items.count, "<u4", "dst_index")
    generations = _integers(items.dst_generation, items.count, "<u8", "dst_generation")
    return [
        FreeItem(index, int(slot), Generation(int(generation)))
        for index, (slot, generation) in enumerate(zip(slots, generations, strict=True))
    ]


def _fixed(column: bytes, count: int, width: int, name: str) -> bytes:
    if len(column) != count * width:
        raise RequestError("a column of the job has the wrong length", column=name, bytes=len(column), items=count)
    return column


def _integers(column: bytes, count: int, kind: str, name: str) -> NDArray[np.unsignedinteger]:
    _fixed(column, count, np.dtype(kind).itemsize, name)
    return np.frombuffer(column, dtype=kind)
