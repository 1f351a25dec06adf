"""A recorded load through the real pool under LRU, against the LRU of libCacheSim, which must hit exactly as often.

No request is longer than the cache: of such a one the pool would keep the head, and the peer the tail.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from typing import Final

from bench.errors import MissingPeerError, WrongBytesError
from bench.measure import Contest, Measure, skipped
from bench.peers.child import Peer
from bench.replay.replay import replay_hits
from bench.replay.trace import Trace, load
from blockyard.core.eviction.lru import LruPolicy

TRACE: Final = "mooncake_conversation"
SHARE: Final = 0.05
"""Capacity, as a share of the different blocks."""
ROUNDS: Final = 3
_MEASURE, _AGAINST = "conversation", "libCacheSim's LRU"


def run(case: str) -> Iterator[Measure]:
    """Blocks per second of a recorded load through a pool under LRU, against libCacheSim with the same hits."""
    yield from _contest(case, load(TRACE))


def _contest(case: str, trace: Trace) -> Iterator[Measure]:
    capacity = trace.capacity(SHARE)
    try:
        with Peer("libcachesim_lru", "libcachesim", requests=_numbers(trace)) as peer:
            hits: list[int] = []

            def ours() -> float:
                hits.append(replay_hits(trace, capacity, LruPolicy))
                return trace.references

            measure = Contest(
                measure=_MEASURE,
                unit="blocks",
                ours=ours,
                theirs=lambda: peer.round("replay", capacity=capacity),
                against=f"{_AGAINST} {peer.version}",
            ).run(case, ROUNDS)
            theirs = peer.ask("last_hits")
            if hits[-1] != theirs:
                raise WrongBytesError(f"the pool hits {hits[-1]} times, {_AGAINST} {theirs} times")
            yield measure
    except MissingPeerError as missing:
        yield skipped(case, _MEASURE, _AGAINST, str(missing))


def _numbers(trace: Trace) -> list[list[int]]:
    """The requests with a number for each block."""
    fresh = count()
    known: defaultdict[bytes, int] = defaultdict(fresh.__next__)
    return [[known[key] for key in request] for request in trace.requests]
