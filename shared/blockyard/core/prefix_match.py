"""How many leading blocks of a chain each reader finds, and in which tiers.

Readers who were alike so far are one class; a run of blocks with equal holders splits a class by the tier in which its
readers find them, and ends those who do not. So the work grows with runs and with differences between readers, not with
blocks times readers. Exact whatever holes a holder has: a block behind a hole counts for nobody.
Invariants: a reader is in one answer at most; ``by_tier`` sums up to ``blocks``, which is at least 1.
Threading: pure functions.
"""

from collections.abc import Iterable
from typing import NamedTuple

from blockyard.core.events import EventOwner
from blockyard.core.reader_board import Planes

_Counts = tuple[int, int, int, int]
Runs = Iterable[tuple[Planes, int]]
"""Consecutive blocks of a chain with equal holders: their planes, and how many they are."""


class PrefixMatch(NamedTuple):
    """Readers for whom the same was found."""

    readers: tuple[EventOwner, ...]
    blocks: int
    """Leading blocks."""
    by_tier: tuple[int, int, int, int]
    """Of these, how many have which tier as their fastest source, from G1."""


class ReaderClass(NamedTuple):
    """Readers by their mask, and the blocks that each of them finds by tier."""

    readers: int
    by_tier: _Counts


def reader_classes(runs: Runs, readers: int, tiers: int) -> list[ReaderClass]:
    """Split ``readers`` by what they find, longest prefix first; those who find nothing are left out.

    Args:
        runs: of the chain from its start; read only as far as anybody goes on.
        readers: mask of those asked about.
        tiers: how many tiers count, from G1.
    """
    ended: list[ReaderClass] = []
    going: dict[_Counts, int] = {(0, 0, 0, 0): readers}
    for planes, length in runs:
        going = _after(going, planes[:tiers], length, ended)
        if not going:
            break
    ended += [ReaderClass(mask, counts) for counts, mask in going.items() if any(counts)]
    ended.reverse()
    return ended


def _after(
    going: dict[_Counts, int], planes: tuple[int, ...], length: int, ended: list[ReaderClass]
) -> dict[_Counts, int]:
    still: dict[_Counts, int] = {}
    for counts, mask in going.items():
        for tier, plane in enumerate(planes):
            if part := mask & plane:
                grown = _grown(counts, tier, length)
                still[grown] = still.get(grown, 0) | part
                mask ^= part
        if mask and any(counts):
            ended.append(ReaderClass(mask, counts))
    return still


def _grown(counts: _Counts, tier: int, length: int) -> _Counts:
    grown = list(counts)
    grown[tier] += length
    first, second, third, fourth = grown
    return first, second, third, fourth
