"""The most hits that any policy can have on a trace: evict the block whose next use is farthest (Belady, 1966).

Same rules as ``bench.replay.replay``. A block is never used later than those behind it in its chain, and of equal next
uses the deeper block goes, so what is kept is closed under prefixes by itself, and the bound is exact.
Threading: pure functions.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from bench.replay.trace import Trace
from blockyard.core.vocabulary import ContentKey

_STALE_SHARE: Final = 4


def belady_hits(trace: Trace, capacity: int) -> int:
    """Hits of a cache of ``capacity`` blocks that knows the future."""
    next_uses = _next_uses(trace.requests)
    next_use: dict[ContentKey, int] = {}
    """Of the blocks in the cache."""
    heap: list[tuple[int, int, ContentKey]] = []
    hits = 0
    for request, uses in zip(trace.requests, next_uses, strict=True):
        keys = request[:capacity]
        found = 0
        while found < len(keys) and keys[found] in next_use:
            found += 1
        hits += found
        # Blocks of the running request are pinned: without an entry nobody evicts them.
        for key in keys[:found]:
            del next_use[key]
        while len(next_use) + len(keys) > capacity:
            negative, _, key = heappop(heap)
            if next_use.get(key) == -negative:
                del next_use[key]
        for position, (key, use) in enumerate(zip(keys, uses, strict=False)):
            next_use[key] = use
            heappush(heap, (-use, -position, key))
        if len(heap) > _STALE_SHARE * (len(next_use) + 1):
            heap = [entry for entry in heap if next_use.get(entry[2]) == -entry[0]]
            heapify(heap)
    return hits


def _next_uses(requests: Sequence[Sequence[ContentKey]]) -> list[list[int]]:
    """Of each block of each request the number of the next request that has it; the number of requests if none."""
    upcoming: dict[ContentKey, int] = {}
    uses: list[list[int]] = []
    for number in range(len(requests) - 1, -1, -1):
        uses.append([upcoming.get(key, len(requests)) for key in requests[number]])
        upcoming.update(dict.fromkeys(requests[number], number))
    uses.reverse()
    return uses
