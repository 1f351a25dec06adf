"""A trace through the real pool: what an engine asks of one tier, without the bytes.

Rules: a request hits its longest prefix that is in the pool. All its blocks are pinned while it runs, those that are
missing are registered, then all are released, the tail of the chain first. Of a request that is longer than the pool
only the blocks that fit are stored.
Threading: one thread.
"""

from itertools import groupby

from bench.replay.trace import Trace
from blockyard.core.block_facts import StagedColumns
from blockyard.core.eviction.base import PolicyFactory
from blockyard.core.handles import ImmutableBlocks
from blockyard.core.identity import ModelIdentity
from blockyard.core.pool import BlockPool
from blockyard.core.vocabulary import ROOT_KEY, ContentKey, Tier

_IDENTITY = ModelIdentity(model="trace").digest()


def replay_hits(trace: Trace, capacity: int, make_policy: PolicyFactory) -> int:
    """Hits of the trace in a pool of ``capacity`` rows under this policy."""
    pool = BlockPool(Tier.G2, capacity, make_policy)
    return sum([_serve(pool, request[:capacity]) for request in trace.requests])


def _serve(pool: BlockPool, keys: list[ContentKey]) -> int:
    prefix = pool.match(keys)
    hits = len(prefix)
    if hits == len(keys):
        prefix.release()
        return hits
    there = [row is not None for row in pool.find(keys[hits:])]
    behind = pool.pin_all([key for key, found in zip(keys[hits:], there, strict=True) if found])
    fresh = _register(pool, keys, [hits + index for index, found in enumerate(there) if not found])
    for found, run in groupby(reversed(there)):
        _release_tail(behind if found else fresh, sum(1 for _ in run))
    for blocks in (fresh, behind, prefix):
        blocks.release()
    return hits


def _register(pool: BlockPool, keys: list[ContentKey], positions: list[int]) -> ImmutableBlocks:
    columns = StagedColumns(
        keys=[keys[position] for position in positions],
        parents=[keys[position - 1] if position else ROOT_KEY for position in positions],
        positions=positions,
        identity=_IDENTITY,
    )
    return pool.allocate(len(positions)).blocks.stage(columns).register().blocks


def _release_tail(blocks: ImmutableBlocks, count: int) -> None:
    blocks.split(range(len(blocks) - count, len(blocks))).release()
