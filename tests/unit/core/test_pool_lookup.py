"""Finding, matching, pinning and sharing blocks."""

import numpy as np
import pytest

from blockyard.core.errors import BlockNotFoundError, BlockStateError
from blockyard.core.states import RowState
from blockyard.core.vocabulary import BlockId, GroupId
from blockyard.testing.blocks import IDENTITY, chain, complete, hold, key, make_pool, store


def test_find_does_not_stop_at_a_miss_and_touches_nothing() -> None:
    pool = make_pool(4)
    run = chain("a", 3)
    rows = store(pool, run)
    keys = [run.key(2), key("other"), run.key(0), run.key(0)]
    assert pool.find(keys) == [rows[2], None, rows[0], rows[0]]
    assert (pool.held, pool.inactive) == (0, 3)
    with pool.evict(3) as doomed:
        assert doomed.ids == (rows[2], rows[1], rows[0])


def test_pinning_is_all_or_nothing() -> None:
    pool = make_pool(3)
    run = chain("a", 3)
    store(pool, run.slice(0, 2))
    with pytest.raises(BlockNotFoundError):
        pool.pin_all(run.keys())
    with pytest.raises(BlockNotFoundError):
        pool.pin_all([run.key(2)])
    assert pool.held == 0
    with pool.pin_all([run.key(1), run.key(0), run.key(1)]) as pinned:
        assert pinned.keys == (run.key(1), run.key(0), run.key(1))
        assert [facts.refs for facts in pinned.facts] == [2, 1, 2]


def test_groups_have_keys_of_their_own() -> None:
    pool = make_pool(4)
    run = chain("a", 1)
    full = store(pool, run)
    window = store(pool, run, GroupId(3))
    assert full != window
    assert pool.find(run) == list(full)
    assert pool.find(run, GroupId(3)) == list(window)
    assert pool.find(run, GroupId(1)) == [None]
    with pool.match(run, GroupId(3)) as matched:
        assert matched.facts[0].group == 3


def test_facts_tell_all_that_was_staged() -> None:
    pool = make_pool(4)
    run = chain("a", 3)
    rows = store(pool, run)
    facts = pool.facts([rows[1]])[0]
    assert (facts.block, facts.generation, facts.refs) == (rows[1], 1, 0)
    assert (facts.key, facts.parent, facts.position) == (run.key(1), run.key(0), 1)
    assert (facts.identity, facts.tenant, facts.group) == (IDENTITY, bytes(16), 0)
    assert sorted(pool.registered()) == sorted(pool.facts(rows))


def test_rows_with_a_findable_block_are_told_from_all_others() -> None:
    pool = make_pool(6)
    idle, gone, held = store(pool, chain("a", 3))
    with pool.pin_all([chain("a", 3).key(2)]), complete(pool, chain("b", 1)):
        pool.condemn(gone, pool.generation(gone)).doomed.release()
        assert [facts.block for facts in pool.registered_in(map(BlockId, range(6)))] == [idle, held]
        assert [row for row, generation in enumerate(pool.registered_generations()) if generation] == [idle, held]
        pool.condemn(held, pool.generation(held))
        assert [facts.block for facts in pool.registered_in(map(BlockId, range(6)))] == [idle]
        assert np.flatnonzero(pool.registered_generations()).tolist() == [idle]
    assert pool.generations().tolist() == [pool.generation(BlockId(row)) for row in range(6)]
    pool.drain_doomed().release()


def test_rows_without_a_registered_block_have_no_facts() -> None:
    pool = make_pool(2)
    with complete(pool, chain("a", 1)) as staged, pytest.raises(BlockStateError):
        pool.facts(staged.ids)


def test_weak_blocks_never_name_the_next_block_in_the_same_row() -> None:
    pool = make_pool(1)
    with hold(pool, chain("a", 1)) as held:
        weak = held.downgrade()
    store(pool, chain("b", 1))
    assert pool.state(BlockId(0)) is RowState.INACTIVE
    assert weak.upgrade() is None
