"""Blocks with one key in several groups go together: evicted for a grant, evicted for room, and what is held stays."""

from collections.abc import Iterator

import pytest

from blockyard.core.errors import BlockStateError, OutOfBlocksError
from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.states import RowState
from blockyard.core.vocabulary import BlockId, GroupId
from blockyard.testing.blocks import chain, hold, make_pool, store

FULL, WINDOW = GroupId(0), GroupId(1)
RUN = chain("family", 3)


class TooFewInTheEnd:
    """Gives some victims well, and then one too few."""

    def __init__(self, columns: RowColumns, good_takes: int) -> None:
        self._real = LruPolicy(columns)
        self.touch, self.forget = self._real.touch, self._real.forget
        self._good = good_takes
        self.insert, self.remove, self.put_back = self._real.insert, self._real.remove, self._real.put_back

    def __len__(self) -> int:
        return len(self._real)

    def __iter__(self) -> Iterator[BlockId]:
        return iter(self._real)

    def take(self, count: int) -> list[BlockId]:
        self._good -= 1
        return self._real.take(count if self._good >= 0 else count - 1)


def test_a_block_that_is_evicted_for_a_grant_takes_its_relatives_along() -> None:
    pool = make_pool(6)
    full, window = store(pool, RUN, FULL), store(pool, RUN, WINDOW)
    allocation = pool.allocate(1)
    assert list(allocation.blocks.ids) == [full[2]], "the tail of what was released first"
    assert [facts.block for facts in allocation.evicted] == [full[2], window[2]]
    assert {facts.key for facts in allocation.evicted} == {RUN.key(2)}
    assert pool.state(window[2]) is RowState.FREE
    assert pool.find([RUN.key(2)], FULL) == pool.find([RUN.key(2)], WINDOW) == [None]
    pool.check_integrity()
    allocation.blocks.release()


def test_relatives_serve_the_same_grant_before_other_families_go() -> None:
    pool = make_pool(6)
    store(pool, RUN, FULL)
    store(pool, RUN, WINDOW)
    allocation = pool.allocate(4)
    assert [facts.key for facts in allocation.evicted] == [RUN.key(2), RUN.key(1), RUN.key(2), RUN.key(1)]
    assert (pool.free, pool.inactive) == (0, 2)
    allocation.blocks.release()


def test_a_relative_that_is_held_stays_and_is_counted() -> None:
    pool = make_pool(6)
    store(pool, RUN, FULL)
    with hold(pool, RUN, WINDOW) as held:
        with pool.evict(3) as doomed:
            assert {facts.group for facts in doomed.facts} == {FULL}
        assert pool.relatives_left == 3
        assert list(pool.find(RUN.keys(), WINDOW)) == list(held.ids)
    assert pool.inactive == 3


def test_room_is_made_family_by_family() -> None:
    pool = make_pool(6)
    store(pool, RUN, FULL)
    store(pool, RUN, WINDOW)
    with pool.evict(3) as doomed:
        assert [facts.key for facts in doomed.facts] == [RUN.key(2), RUN.key(2), RUN.key(1), RUN.key(1)]
    pool.check_integrity()


def test_more_than_there_is_cannot_be_granted_whatever_families_there_are() -> None:
    pool = make_pool(6)
    store(pool, RUN, FULL)
    store(pool, RUN, WINDOW)
    with pytest.raises(OutOfBlocksError):
        pool.allocate(7)
    assert pool.inactive == 6


@pytest.mark.parametrize("good_takes", [0, 1])
def test_a_policy_that_gives_too_few_in_the_end_loses_nothing(good_takes: int) -> None:
    pool = make_pool(6, lambda columns: TooFewInTheEnd(columns, good_takes))
    store(pool, RUN, FULL)
    store(pool, RUN, WINDOW)
    with pytest.raises(OutOfBlocksError, match="wrong victims"):
        pool.evict(5)
    assert pool.inactive == 6
    assert pool.relatives_left == 0
    pool.check_integrity()


@pytest.mark.parametrize("group", [FULL, WINDOW])
def test_relatives_of_a_block_are_those_with_its_key(group: GroupId) -> None:
    pool = make_pool(8)
    rows = {of: store(pool, RUN, of) for of in (FULL, WINDOW)}
    store(pool, chain("another", 2), WINDOW)
    other = WINDOW if group is FULL else FULL
    assert [pool.relatives(row) for row in rows[group]] == [[row] for row in rows[other]]


def test_only_a_registered_block_has_relatives() -> None:
    pool = make_pool(4)
    with pytest.raises(BlockStateError):
        pool.relatives(BlockId(0))
