"""Handles: one-shot transitions that either happen or leave the handle armed."""

from typing import TYPE_CHECKING

import pytest

from blockyard.core.block_facts import StagedColumns
from blockyard.core.errors import HandleConsumedError, KernelError
from blockyard.core.states import RowState
from blockyard.core.vocabulary import ContentKey
from blockyard.testing.blocks import IDENTITY, chain, clear, columns, hold, make_pool

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_consumed_handle_refuses_every_verb() -> None:
    pool = make_pool(2)
    mutable = pool.allocate(1).blocks
    staged = mutable.stage(columns(chain("a", 1)))
    held = staged.register().blocks
    held.release()
    verbs: list[Callable[[], object]] = [
        mutable.release,
        lambda: mutable.ids,
        lambda: mutable.split([0]),
        staged.register,
        staged.reset,
        held.release,
        held.clone,
        held.downgrade,
        lambda: held.keys,
    ]
    for verb in verbs:
        with pytest.raises(HandleConsumedError):
            verb()
    assert len(held) == 0
    assert "consumed" in repr(held)


def test_a_with_block_releases_what_is_still_held() -> None:
    pool = make_pool(2)
    with pool.allocate(2).blocks as blocks:
        blocks.stage(columns(chain("a", 2)), [0]).release()
        assert len(blocks) == 1
    assert pool.free == 2
    with pool.allocate(1).blocks as blocks:
        blocks.release()
    with pytest.raises(HandleConsumedError), blocks:
        pass


def test_staging_some_rows_leaves_the_others_in_the_handle() -> None:
    pool = make_pool(3)
    run = chain("a", 3)
    mutable = pool.allocate(3).blocks
    staged = mutable.stage(columns(run), [2, 0])
    assert staged.ids == (2, 0)
    assert mutable.ids == (1,)
    with staged.register().blocks as held:
        assert held.keys == (run.key(2), run.key(0))
        assert [facts.parent for facts in held.facts] == [run.key(1), run.parent]
        assert [facts.position for facts in held.facts] == [2, 0]
    mutable.release()
    assert (pool.free, pool.inactive) == (1, 2)


def test_staging_everything_by_index_leaves_an_empty_handle() -> None:
    pool = make_pool(1)
    with pool.allocate(1).blocks as mutable:
        mutable.stage(columns(chain("a", 1)), [0]).release()
        assert mutable.ids == ()


@pytest.mark.parametrize("indexes", [[0, 0], [2], [-1]])
def test_wrong_indexes_change_nothing(indexes: list[int]) -> None:
    pool = make_pool(2)
    with pool.allocate(2).blocks as mutable:
        with pytest.raises(KernelError):
            mutable.split(indexes)
        with pytest.raises(KernelError):
            mutable.stage(columns(chain("a", 2)), indexes)
        assert mutable.ids == (0, 1)
        assert pool.mutable == 2


@pytest.mark.parametrize(
    ("keys", "positions"),
    [([bytes(16)], []), ([bytes(15)], [0]), ([bytes(16)], [2**32]), ([bytes(16)], [-1])],
    ids=["length", "key width", "position too large", "negative position"],
)
def test_impossible_columns_are_refused(keys: list[bytes], positions: list[int]) -> None:
    names = [ContentKey(key) for key in keys]
    with pytest.raises(KernelError):
        StagedColumns(keys=names, parents=names, positions=positions, identity=IDENTITY)


def test_rows_are_staged_one_by_one_and_the_rest_stays_in_the_handle() -> None:
    pool = make_pool(2)
    mutable = pool.allocate(2).blocks
    staged = mutable.stage(columns(chain("a", 2)), [0])
    assert mutable.ids == (1,)
    with staged.register().blocks:
        mutable.stage(columns(chain("b", 1))).release()
    assert pool.inactive == 1


def test_a_clone_keeps_blocks_pinned() -> None:
    pool = make_pool(2)
    held = hold(pool, chain("a", 2))
    twin = held.clone()
    assert [facts.refs for facts in held.facts] == [2, 2]
    held.release()
    assert pool.held == 2
    twin.release()
    assert pool.inactive == 2


def test_split_pins_are_released_apart() -> None:
    pool = make_pool(3)
    held = hold(pool, chain("a", 3))
    part = held.split([0, 2])
    held.release()
    assert [pool.state(row) for row in part.ids] == [RowState.HELD] * 2
    part.release()
    assert pool.inactive == 3


def test_doomed_rows_are_cut_in_order_and_given_back_part_by_part() -> None:
    pool = make_pool(5)
    hold(pool, chain("a", 5)).release()
    doomed = clear(pool).doomed
    rows = doomed.ids
    with pytest.raises(KernelError):
        doomed.cut(0)
    parts = doomed.cut(2)
    assert [part.ids for part in parts] == [rows[:2], rows[2:4], rows[4:]]
    with pytest.raises(HandleConsumedError):
        doomed.release()
    for part in parts:
        part.release()
    assert pool.free == 5
    assert clear(pool).doomed.cut(2) == []
    pool.check_integrity()
