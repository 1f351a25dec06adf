"""Builders for tests about blocks: chains of made-up blocks, and short ways through their life cycle."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from blockyard.core.block_facts import DEFAULT_GROUP, AdoptedBlock, StagedColumns
from blockyard.core.chain_run import ChainRun
from blockyard.core.clear_scope import EVERYTHING, ClearScope
from blockyard.core.eviction.base import PolicyFactory
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.handles import CompleteBlocks, DoomedBlocks, ImmutableBlocks
from blockyard.core.pool import BlockPool
from blockyard.core.registry import BlockRegistry
from blockyard.core.states import DuplicatePolicy
from blockyard.core.vocabulary import (
    DEFAULT_TENANT,
    BlockId,
    ContentKey,
    Generation,
    GroupId,
    IdentityDigest,
    Tier,
)

IDENTITY = IdentityDigest(hashlib.sha256(b"test model").digest())


def chain(name: str, blocks: int) -> ChainRun:
    """A chain of ``blocks`` made-up blocks; equal names give equal keys, whatever the length."""
    return ChainRun(b"".join(hashlib.sha256(f"{name} {index}".encode()).digest() for index in range(blocks)))


def key(name: str, index: int = 0) -> ContentKey:
    """Content key of one block of ``chain(name, ...)``."""
    return chain(name, index + 1).key(index)


def columns(run: ChainRun, group: GroupId = DEFAULT_GROUP) -> StagedColumns:
    """Columns of a run under the test identity and the default tenant."""
    return StagedColumns.of_run(run, IDENTITY, group=group)


def make_pool(
    capacity: int,
    make_policy: PolicyFactory = LruPolicy,
    *,
    tier: Tier = Tier.G2,
    duplicates: DuplicatePolicy = DuplicatePolicy.REJECT,
    reset_on_release: bool = False,
    shards: int = 1,
    registry: BlockRegistry | None = None,
) -> BlockPool:
    """A G2 pool, with LRU eviction unless another policy is given."""
    return BlockPool(
        tier,
        capacity,
        make_policy,
        duplicates=duplicates,
        reset_on_release=reset_on_release,
        shards=shards,
        registry=registry,
    )


def complete(pool: BlockPool, run: ChainRun, group: GroupId = DEFAULT_GROUP) -> CompleteBlocks:
    """Grant rows for a run and stage them."""
    return pool.allocate(len(run)).blocks.stage(columns(run, group))


def hold(pool: BlockPool, run: ChainRun, group: GroupId = DEFAULT_GROUP) -> ImmutableBlocks:
    """Register a run and keep it pinned."""
    return complete(pool, run, group).register().blocks


def store(pool: BlockPool, run: ChainRun, group: GroupId = DEFAULT_GROUP) -> tuple[BlockId, ...]:
    """Register a run and release it; returns its rows."""
    with hold(pool, run, group) as blocks:
        return blocks.ids


def stored_records(run: ChainRun, rows: Sequence[int], generations: Sequence[int]) -> list[AdoptedBlock]:
    """What an inventory says of the blocks of a run that lie in these rows."""
    return [
        AdoptedBlock(
            BlockId(row),
            Generation(generation),
            run.key(index),
            run.parent_of(index),
            run.first_position + index,
            IDENTITY,
            DEFAULT_TENANT,
        )
        for index, (row, generation) in enumerate(zip(rows, generations, strict=True))
    ]


@dataclass(frozen=True, slots=True)
class Cleared:
    """What a clear met, by outcome."""

    doomed: DoomedBlocks
    """Rows that nobody held."""
    pinned: int
    in_flight: int


def clear(pool: BlockPool, scope: ClearScope = EVERYTHING, elsewhere: Collection[BlockId] = ()) -> Cleared:
    """Cut off what is in scope and sweep it at once."""
    report = pool.cut(scope, elsewhere)
    return Cleared(pool.sweep(pool.capacity).doomed, report.pinned, report.in_flight)
