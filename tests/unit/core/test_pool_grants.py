"""Granting rows: all or nothing, free rows first, generations that rise."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from blockyard.core.errors import KernelError, OutOfBlocksError
from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.pool import BlockPool
from blockyard.core.states import RowState
from blockyard.core.vocabulary import BlockId
from blockyard.testing.blocks import chain, hold, make_pool, store


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(KernelError):
        make_pool(1).allocate(-1)


@pytest.mark.parametrize("capacity", [0, -1])
def test_impossible_tables_are_refused(capacity: int) -> None:
    with pytest.raises(KernelError):
        make_pool(capacity)


def test_without_eviction_only_free_rows_are_granted() -> None:
    pool = make_pool(3)
    store(pool, chain("a", 2))
    with pytest.raises(OutOfBlocksError):
        pool.allocate(2, evict=False)
    pool.allocate(1, evict=False).blocks.release()
    assert pool.inactive == 2


def test_a_generation_rises_at_every_grant_and_only_there() -> None:
    pool = make_pool(1)
    with pool.allocate(1).blocks as blocks:
        assert blocks.generations == (1,)
    assert pool.generation(BlockId(0)) == 1
    with hold(pool, chain("a", 1)) as held:
        assert held.generations == (2,)
    pool.evict(1).release()
    assert pool.generation(BlockId(0)) == 2
    with pool.allocate(1).blocks as blocks:
        assert blocks.generations == (3,)


Victims = Callable[[list[BlockId]], list[BlockId]]


class FaultyPolicy:
    """A policy that gives other victims than the right ones."""

    def __init__(self, columns: RowColumns, fault: Victims) -> None:
        self._real = LruPolicy(columns)
        self.touch, self.forget = self._real.touch, self._real.forget
        self._fault = fault
        self._right: list[BlockId] = []

    def __len__(self) -> int:
        return len(self._real)

    def __iter__(self) -> Iterator[BlockId]:
        return iter(self._real)

    def insert(self, blocks: Sequence[BlockId]) -> None:
        self._real.insert(blocks)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        self._real.remove(blocks)

    def take(self, count: int) -> list[BlockId]:
        self._right = self._real.take(count)
        return self._fault(self._right)

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        self._real.put_back(self._right)


HELD_ROW = BlockId(0)
FAULTS: dict[str, Victims] = {
    "too few": lambda right: right[:-1],
    "a row twice": lambda right: [right[0]] * len(right),
    "a held row": lambda right: [HELD_ROW, *right[1:]],
    "a held row beside the right ones": lambda right: [*right, HELD_ROW],
}
VERBS: dict[str, Callable[[BlockPool], object]] = {
    "allocate": lambda pool: pool.allocate(4),
    "evict": lambda pool: pool.evict(3),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_policy_that_gives_wrong_victims_fails_the_call_and_changes_nothing(
    fault: Victims, verb: Callable[[BlockPool], object]
) -> None:
    made: list[FaultyPolicy] = []

    def make(columns: RowColumns) -> FaultyPolicy:
        made.append(FaultyPolicy(columns, fault))
        return made[0]

    pool = make_pool(5, make)
    [policy] = made
    with hold(pool, chain("h", 1)) as held:
        assert held.ids == (HELD_ROW,)
        store(pool, chain("a", 3))
        before = (list(policy), repr(pool), pool.find(chain("a", 3)))
        with pytest.raises(OutOfBlocksError):
            verb(pool)
        assert (list(policy), repr(pool), pool.find(chain("a", 3))) == before
        pool.check_integrity()


# --- named rows ---------------------------------------------------------------------------------------------------
def test_named_free_rows_are_taken_and_no_other_row_is_touched() -> None:
    pool = make_pool(5)
    store(pool, chain("a", 1))
    with pool.take([BlockId(3), BlockId(1)]) as taken:
        assert (taken.ids, taken.generations) == ((3, 1), (1, 1))
        assert [pool.generation(BlockId(row)) for row in (2, 4)] == [0, 0]
        assert (pool.free, pool.inactive) == (2, 1)
        pool.check_integrity()
        with pool.allocate(2, evict=False).blocks as others:
            assert others.ids == (2, 4)
    with pool.allocate(4, evict=False).blocks as again:
        assert again.ids == (2, 4, 3, 1)


@pytest.mark.parametrize("rows", [(1, 0), (1, 1), (1, 9), (1, -1)], ids=["in use", "twice", "too high", "negative"])
def test_rows_that_cannot_be_taken_together_are_all_left(rows: tuple[int, ...]) -> None:
    pool = make_pool(3)
    store(pool, chain("a", 1))
    with pytest.raises(KernelError):
        pool.take([BlockId(row) for row in rows])
    assert (pool.free, pool.mutable, pool.generation(BlockId(1))) == (2, 0, 0)
    pool.check_integrity()


def test_no_rows_can_be_taken() -> None:
    assert len(make_pool(1).take([])) == 0


def test_unknown_rows_are_refused() -> None:
    pool = make_pool(2)
    for row in (-1, 2):
        with pytest.raises(KernelError):
            pool.state(BlockId(row))
    assert pool.state(BlockId(1)) is RowState.FREE


def test_repr_shows_the_rows_per_state() -> None:
    pool = make_pool(3)
    store(pool, chain("a", 1))
    assert repr(pool) == "<BlockPool g2 free=2 mutable=0 complete=0 held=0 inactive=1 await_free=0 abandoned=0>"
