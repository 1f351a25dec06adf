"""Copies that several ranks make together: ended when every rank has said so.

Threading: one thread.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar, final

from blockyard.tiers.device.fences import Fences

CopyT = TypeVar("CopyT", bound=Hashable)


@final
class RankEnds(Generic[CopyT]):
    """Which ranks have ended which copies."""

    def __init__(self, ranks: int, fences: Fences) -> None:
        """Wait for ``ranks`` ranks."""
        self._ranks = ranks
        self._fences = fences
        self._ended: dict[CopyT, set[int]] = {}
        self._reported: set[CopyT] = set()

    def ended(self, rank: int, copy: CopyT) -> bool:
        """One rank has ended its part; True exactly once per copy, when that makes it whole."""
        ranks = self._ended.setdefault(copy, set())
        ranks.add(rank)
        whole = self._fences.ended_everywhere(len(ranks), self._ranks) and copy not in self._reported
        if whole:
            self._reported.add(copy)
        if len(ranks) == self._ranks:
            del self._ended[copy]
            self._reported.discard(copy)
        return whole
