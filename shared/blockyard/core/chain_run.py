"""A run of blocks of one chain: the columns by which blocks are named in every call.

A chain is the sequence of blocks of one token sequence; block *i* has position *i* and the key of block *i-1* as its
parent. A ``ChainRun`` holds n ≥ 0 consecutive blocks, so parents and positions follow from the first.
Invariants: ``digests`` holds a whole number of 32-byte digests; the parent of the block at position 0 is ``ROOT_KEY``;
no position exceeds ``MAX_CHAIN_BLOCKS - 1``.
Threading: frozen value.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from blockyard.core.errors import RequestError
from blockyard.core.vocabulary import DIGEST_BYTES, KEY_BYTES, ROOT_KEY, ChainDigest, ContentKey
from blockyard.core.whole_numbers import require_bytes, require_whole

MAX_CHAIN_BLOCKS: Final = 2**32
"""Positions travel as u32."""


@dataclass(frozen=True, slots=True)
class ChainRun:
    """Consecutive blocks of one chain.

    Attributes:
        digests: n × 32 bytes, the chain digests in order.
        first_position: position of the first block in its chain.
        parent: content key of the block before the first; ``ROOT_KEY`` at position 0.
    """

    digests: bytes
    first_position: int = 0
    parent: ContentKey = ROOT_KEY

    def __post_init__(self) -> None:
        """Refuse columns that cannot be a run."""
        require_bytes("digests", self.digests)
        if len(self.digests) % DIGEST_BYTES:
            raise RequestError("digests are not a whole number of 32-byte digests", length=len(self.digests))
        require_bytes("parent key", self.parent, KEY_BYTES)
        require_whole("first position", self.first_position, 0, MAX_CHAIN_BLOCKS)
        if (self.first_position == 0) != (self.parent == ROOT_KEY):
            raise RequestError("only position 0 has the root as parent", position=self.first_position)
        if self.first_position + len(self) > MAX_CHAIN_BLOCKS:
            raise RequestError("the chain is too long", position=self.first_position, blocks=len(self))

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.digests) // DIGEST_BYTES

    def digest(self, index: int) -> ChainDigest:
        """Chain digest of block ``index`` of this run."""
        return ChainDigest(self.digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES])

    def key(self, index: int) -> ContentKey:
        """Content key of block ``index`` of this run."""
        start = index * DIGEST_BYTES
        return ContentKey(self.digests[start : start + KEY_BYTES])

    def keys(self) -> list[ContentKey]:
        """Content keys in order."""
        return [self.key(index) for index in range(len(self))]

    def parent_of(self, index: int) -> ContentKey:
        """Content key of the block before block ``index``."""
        return self.key(index - 1) if index else self.parent

    def slice(self, start: int, stop: int) -> "ChainRun":
        """Blocks ``start`` to ``stop - 1`` as a run of their own; an empty one stands where its first block would.

        Numbers beyond the end of this run mean its end.

        Raises:
            RequestError: a number is negative, or none.
        """
        require_whole("start of a slice", start)
        require_whole("end of a slice", stop)
        start = min(start, len(self))
        digests = self.digests[start * DIGEST_BYTES : max(start, stop) * DIGEST_BYTES]
        return ChainRun(digests, self.first_position + start, self.parent_of(start))

    def __iter__(self) -> Iterator[ContentKey]:
        """Content keys in order."""
        return iter(self.keys())
