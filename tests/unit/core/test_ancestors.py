"""Which blocks before released ones count as released with them, and in what order a chain stored in parts leaves."""

from collections.abc import Sequence

import pytest

from blockyard.core.ancestors import MOST_ANCESTORS
from blockyard.core.block_facts import StagedColumns
from blockyard.core.eviction.registry import known_policies, policy_factory
from blockyard.core.eviction.retention import Retention
from blockyard.core.pool import BlockPool
from blockyard.core.vocabulary import ContentKey
from blockyard.testing.blocks import IDENTITY, chain, columns, key, make_pool, store


def store_as(
    pool: BlockPool, keys: Sequence[ContentKey], parents: Sequence[ContentKey], positions: Sequence[int]
) -> None:
    named = StagedColumns(keys=keys, parents=parents, positions=positions, identity=IDENTITY)
    pool.allocate(len(keys)).blocks.stage(named).register().blocks.release()


def leaving(pool: BlockPool) -> list[ContentKey]:
    return [block.key for block in pool.next_victims(pool.capacity)]


@pytest.mark.parametrize("policy", [name for name in known_policies() if name not in ("fifo", "s3_fifo")])
def test_a_chain_that_is_stored_in_parts_leaves_from_its_tail(policy: str) -> None:
    pool = make_pool(32, policy_factory(policy))
    run = chain("a", 24)
    for start in range(0, 24, 8):
        store(pool, run.slice(start, start + 8))
    assert leaving(pool) == run.keys()[::-1]
    allocation = pool.allocate(16)
    allocation.blocks.release()
    assert [block.key for block in allocation.evicted] == run.keys()[:15:-1]
    pool.check_integrity()


def test_a_block_that_is_stored_behind_a_chain_keeps_that_and_not_other_blocks_behind_it() -> None:
    pool = make_pool(16)
    run = chain("a", 6)
    store(pool, run)
    store(pool, chain("b", 2))
    fork = chain("fork", 1)
    store_as(pool, fork.keys(), [run.key(2)], [3])
    assert leaving(pool) == [*run.keys()[:2:-1], *chain("b", 2).keys()[::-1], fork.key(0), *run.keys()[2::-1]]
    pool.check_integrity()


def test_parts_of_several_chains_in_one_batch_bring_the_ancestors_of_each() -> None:
    pool = make_pool(16)
    a, b = chain("a", 4), chain("b", 4)
    store(pool, a.slice(0, 2))
    store(pool, b.slice(0, 2))
    store(pool, chain("c", 2))
    first, second = columns(a.slice(2, 4)), columns(b.slice(2, 4))
    store_as(
        pool,
        [*first.keys, *second.keys],
        [*first.parents, *second.parents],
        [*first.positions, *second.positions],
    )
    order = leaving(pool)
    assert order[:2] == chain("c", 2).keys()[::-1]
    for run in (a, b):
        assert [found for found in order if found in run.keys()] == run.keys()[::-1]
    pool.check_integrity()


def test_ancestors_that_are_held_stay_held_and_end_the_search() -> None:
    pool = make_pool(16)
    run = chain("a", 6)
    store(pool, run.slice(0, 4))
    with pool.match([run.key(0), run.key(1)]) as held:
        with pool.scan([run.key(1)]):
            store(pool, run.slice(4, 6))
        assert len(held) == 2
        assert leaving(pool) == run.keys()[:1:-1]
    pool.check_integrity()
    assert leaving(pool) == [*run.keys()[:1:-1], run.key(1), run.key(0)]


def test_names_that_contradict_each_other_end_the_search() -> None:
    pool = make_pool(8)
    keys = chain("a", 3).keys()
    for block, parent, position in ((0, 1, 1), (1, 0, 1), (2, 1, 2)):
        store_as(pool, [keys[block]], [keys[parent]], [position])
    assert len(leaving(pool)) == 3
    pool.check_integrity()


def test_hints_about_ancestors_hold() -> None:
    pool = make_pool(16)
    run = chain("a", 6)
    store(pool, run.slice(0, 2))
    pool.hint([run.key(0)], Retention(10))
    store(pool, run.slice(2, 6))
    store(pool, chain("b", 1))
    assert leaving(pool) == [*run.keys()[:0:-1], key("b"), run.key(0)]
    pool.check_integrity()


def test_of_a_long_chain_the_nearest_ancestors_are_found() -> None:
    run = chain("a", MOST_ANCESTORS + 10)
    pool = make_pool(len(run))
    store(pool, run.slice(0, len(run) - 1))
    store(pool, run.slice(len(run) - 1, len(run)))
    assert leaving(pool) == [*run.keys()[8::-1], *run.keys()[:8:-1]]
