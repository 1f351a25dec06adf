"""The order by runs: what a plain list of rows does, and links that are written at the ends of runs only."""

import random
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from blockyard.core.errors import KernelError
from blockyard.core.eviction.run_order import RunOrder
from blockyard.core.vocabulary import BlockId
from blockyard.testing.eviction_conformance import rows

CAPACITY = 24


def run(start: int, stop: int) -> Sequence[BlockId]:
    return cast("Sequence[BlockId]", range(start, stop))


def order_of(*batches: Sequence[BlockId]) -> RunOrder:
    order = RunOrder(CAPACITY)
    for batch in batches:
        order.insert(batch)
    return order


class Model:
    """The same order as a list."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.order = RunOrder(CAPACITY)
        self.rows: list[BlockId] = []

    def step(self) -> str:
        step = self.chance.choice([self.insert, self.insert, self.remove, self.remove, self.take, self.put_back])
        step()
        assert list(self.order) == self.rows
        assert len(self.order) == len(self.rows)
        assert not self.order.violations()
        return step.__name__

    def insert(self) -> None:
        batch = self._some([BlockId(row) for row in range(CAPACITY) if row not in self.rows])
        self.order.insert(batch)
        self.rows += batch[::-1]

    def remove(self) -> None:
        batch = self._some(sorted(self.rows))
        self.order.remove(batch)
        self.rows = [row for row in self.rows if row not in batch]

    def take(self) -> None:
        count = self.chance.randrange(CAPACITY)
        taken, self.rows = self.rows[:count], self.rows[count:]
        assert self.order.take(count) == taken

    def put_back(self) -> None:
        count = self.chance.randrange(CAPACITY)
        taken = self.order.take(count)
        assert taken == self.rows[:count]
        self.order.put_back(taken)

    def _some(self, known: list[BlockId]) -> Sequence[BlockId]:
        """Some of these rows: neighbours as a range, or any in any order."""
        if not known:
            return []
        if self.chance.random() < 0.3:
            return self.chance.sample(known, self.chance.randint(0, min(6, len(known))))
        stop = start = self.chance.choice(known)
        wanted = self.chance.randint(1, CAPACITY)
        while stop in known and stop - start < wanted:
            stop = BlockId(stop + 1)
        found = run(start, stop)
        return found if self.chance.random() < 0.7 else list(found)


@pytest.mark.parametrize("seed", range(4))
def test_an_order_by_runs_is_that_of_a_list(seed: int) -> None:
    model = Model(seed)
    done = [model.step() for _ in range(1_000)]
    assert set(done) == {"insert", "remove", "take", "put_back"}


def test_a_run_leaves_tail_first_and_in_parts() -> None:
    order = order_of(run(0, 8), run(8, 10))
    assert order.take(3) == [7, 6, 5]
    assert order.take(6) == [4, 3, 2, 1, 0, 9]
    assert order.take(6) == [8]
    assert order.take(1) == []


def test_of_a_run_that_is_cut_both_parts_keep_its_place() -> None:
    order = order_of(run(0, 10), rows(20))
    order.remove(run(4, 6))
    order.insert(run(4, 6))
    assert list(order) == [9, 8, 7, 6, 3, 2, 1, 0, 20, 5, 4]
    assert not order.violations()


def test_neighbours_in_several_runs_leave_together() -> None:
    order = order_of(run(4, 8), rows(20), run(0, 4), run(8, 12))
    order.remove(run(2, 10))
    assert list(order) == [20, 1, 0, 11, 10]


def test_runs_longer_than_the_templates_of_marks() -> None:
    order = RunOrder(10_000)
    order.insert(run(0, 9_000))
    assert not order.violations()
    order.remove(run(0, 9_000))
    assert list(order) == []
    assert not order.violations()


@pytest.mark.parametrize(
    "refused",
    [
        lambda order: order.insert(run(6, 12)),
        lambda order: order.insert(rows(12, 3)),
        lambda order: order.insert(rows(12, 12)),
        lambda order: order.remove(run(6, 12)),
        lambda order: order.remove(run(12, 14)),
        lambda order: order.remove(rows(3, 12)),
        lambda order: order.remove(rows(3, 3)),
        lambda order: order.put_back(rows(12, 3)),
        lambda order: order.put_back(rows(12, 12)),
    ],
    ids=[
        "a run that is there in part",
        "a row that is there",
        "a new row twice",
        "a run that is missing in part",
        "a run that is missing",
        "a row that is missing",
        "a row twice",
        "back though it is there",
        "back twice",
    ],
)
def test_what_is_refused_changes_nothing(refused: Callable[[RunOrder], None]) -> None:
    order = order_of(run(0, 8), rows(20))
    with pytest.raises(KernelError):
        refused(order)
    assert list(order) == [*range(7, -1, -1), 20]
    assert not order.violations()


@pytest.mark.parametrize(
    ("damage", "violation"),
    [
        (lambda order: order._next.__setitem__(CAPACITY, 99), "name each other"),
        (lambda order: order._next.__setitem__(0, 7), "name each other"),
        (lambda order: order._previous.__setitem__(20, CAPACITY), "name each other"),
        (lambda order: order._previous.__setitem__(CAPACITY, 0), "name each other"),
        (lambda order: order._previous.__setitem__(0, 6), "other ends"),
        (lambda order: order._next.__setitem__(7, 2), "other ends"),
        (lambda order: order._marks.__setitem__(12, 1), "marked"),
        (lambda order: order._marks.__setitem__(4, 0), "marked"),
        (lambda order: setattr(order, "_size", 8), "are said to be"),
    ],
    ids=[
        "a row that there is not",
        "a circle",
        "another run before",
        "another last run",
        "another highest row",
        "another lowest row",
        "a mark too many",
        "a mark too few",
        "a wrong count",
    ],
)
def test_damage_is_found(damage: Callable[[RunOrder], None], violation: str) -> None:
    order = order_of(run(0, 8), rows(20))
    assert not order.violations()
    damage(order)
    assert any(violation in found for found in order.violations())
