"""KV groups of a model: which layers share one attention rule, and how their pages make up a block.

A *page* is the engine's own unit: the bytes of one engine block in one layer. A *row* is one block of one group; its
payload is, in this order, every shard (one per writing rank), in it every engine block of the row, in it every region
(one layer, or what a layout keeps together), one page each::

    payload = shard 0: [block 0: region 0, region 1, …][block 1: …]…  shard 1: …

A group of which all ranks hold equal bytes (latent attention) is *replicated*: one shard, written by rank 0, read by
all ranks.
Invariants: groups of a model are numbered from 0 without gaps; a row of a group takes ``pages_per_row`` engine blocks.
Threading: frozen values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final, final

from blockyard.core.errors import LayoutMismatchError
from blockyard.core.vocabulary import EngineBlockId, GroupId

NO_PAGE: Final = EngineBlockId(0xFFFF_FFFF)
"""In the pages of a row: the engine has no use for this part (it holds it already, or its window has passed it)."""
CANONICAL_SHAPE: Final = "canonical"
"""Parallel shape of rows that do not depend on the number of ranks."""


@unique
class GroupKind(StrEnum):
    """Attention rule of a group: which blocks of a prefix must be there to go on after it."""

    FULL = "full"
    """Every block from the start."""
    SLIDING_WINDOW = "sliding_window"
    """The blocks that overlap the last ``window_tokens`` tokens."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """One group of a model."""

    group: GroupId = GroupId(0)
    kind: GroupKind = GroupKind.FULL
    engine_block_tokens: int
    window_tokens: int = 0
    """Of a sliding window; 0 for full attention."""
    replicated: bool = False
    """Every rank holds the same bytes."""

    def shards(self, ranks: int) -> int:
        """Shards of a row where the engine has ``ranks`` ranks."""
        return 1 if self.replicated else ranks

    def pages_per_row(self, block_tokens: int) -> int:
        """Engine blocks of one row.

        Raises:
            LayoutMismatchError: a block is not a whole number of engine blocks.
        """
        if self.engine_block_tokens < 1 or block_tokens % self.engine_block_tokens:
            raise LayoutMismatchError(
                "a block is a whole number of engine blocks",
                group=self.group,
                engine_block_tokens=self.engine_block_tokens,
                block_tokens=block_tokens,
            )
        return block_tokens // self.engine_block_tokens


@final
@dataclass(frozen=True, slots=True)
class Region:
    """Where the pages of one layer lie in a rank's memory: page i at ``offset_bytes + i * stride_bytes``."""

    offset_bytes: int
    stride_bytes: int
    page_bytes: int


def row_bytes(group: KvGroup, regions: Sequence[Region], ranks: int, block_tokens: int) -> int:
    """Payload bytes of a row of a group whose ranks have these regions each."""
    page_bytes = sum(region.page_bytes for region in regions)
    return page_bytes * group.pages_per_row(block_tokens) * group.shards(ranks)


def group_spec(groups: Sequence[KvGroup]) -> str:
    """Canonical text of a model's groups, for its identity: ``full`` where there is one full-attention group.

    Groups whose engine blocks have different sizes say theirs (``full@16,full@32``): which of them has which decides
    how a row is laid out, and the identity names only the part that they have in common.
    """
    alike = len({group.engine_block_tokens for group in groups}) < 2
    return ",".join(_spec(group) if alike else f"{_spec(group)}@{group.engine_block_tokens}" for group in groups)


def common_block_tokens(groups: Sequence[KvGroup]) -> int:
    """Tokens of the largest stretch that engine blocks of all groups are whole multiples of, for the identity."""
    return math.gcd(*(group.engine_block_tokens for group in groups))


def parallel_shapes(groups: Sequence[KvGroup], ranks: int) -> tuple[str, ...]:
    """What the identity of an engine may say of its ranks: rows are cut by their number, unless all are replicated."""
    shape = f"tp{ranks}"
    return (shape, CANONICAL_SHAPE) if all(group.replicated for group in groups) else (shape,)


def _spec(group: KvGroup) -> str:
    text = group.kind.value if group.kind is GroupKind.FULL else f"{group.kind.value}:{group.window_tokens}"
    return f"{text}:replicated" if group.replicated else text
