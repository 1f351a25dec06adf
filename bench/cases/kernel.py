"""Block lifecycle of the kernel against the barest bookkeeping that Python allows."""

from collections.abc import Iterator
from typing import Final

from bench.measure import Contest, Measure
from blockyard.core.block_facts import StagedColumns
from blockyard.core.chain_run import ChainRun
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.hashing import content_run
from blockyard.core.identity import ModelIdentity, SequenceScope
from blockyard.core.pool import BlockPool
from blockyard.core.vocabulary import DEFAULT_TENANT, GroupId, Tier

BATCH: Final = 64
BATCHES: Final = 64
OPERATIONS: Final = 6
"""allocate, stage, register, match, release twice."""


def run(case: str) -> Iterator[Measure]:
    """Block operations per second of a full cycle in batches of 64, against a dict and a list without any checks."""
    identity = ModelIdentity(model="bench").digest()
    runs = [
        content_run(identity, SequenceScope(salt=str(number)), range(BATCH), block_tokens=1)
        for number in range(BATCHES)
    ]
    columns = [StagedColumns.of_run(part, identity, DEFAULT_TENANT, GroupId(0)) for part in runs]

    def ours() -> float:
        pool = BlockPool(Tier.G2, BATCH * BATCHES, LruPolicy)
        for part, staged in zip(runs, columns, strict=True):
            pool.allocate(BATCH).blocks.stage(staged).register().blocks.release()
            pool.match(part.keys()).release()
        return BATCH * BATCHES * OPERATIONS

    def theirs() -> float:
        free = list(range(BATCH * BATCHES))
        index: dict[bytes, int] = {}
        for part in runs:
            _bare_cycle(free, index, part)
        return BATCH * BATCHES * OPERATIONS

    yield Contest(
        measure="lifecycle", unit="block-ops", ours=ours, theirs=theirs, against="a bare dict and list, no checks"
    ).run(case)


def _bare_cycle(free: list[int], index: dict[bytes, int], part: ChainRun) -> None:
    keys = part.keys()
    for key in keys:
        index[key] = free.pop()
    for key in part.keys():
        if key not in index:
            break
