"""Behaviour that every eviction policy must show: inherit, give ``make_policy``, and the tests run.

::

    class TestMine(EvictionPolicyTests):
        def make_policy(self, columns: RowColumns) -> EvictionPolicy:
            return MyPolicy(columns)

Threading: one thread.
"""

import random
from collections.abc import Sequence
from typing import cast

import pytest

from blockyard.core.errors import KernelError
from blockyard.core.eviction.base import EvictionPolicy, RowColumns
from blockyard.core.vocabulary import BlockId
from blockyard.testing.eviction_driver import STEPS, EvictionDriver
from blockyard.testing.row_columns import NamedRows

_DEEP = 12_000
_WIDE = 40
_LEAVING = 0.4
_LONGER = 0.9
_SEEDS = range(8)
_STEPS_PER_SEED = 250


def rows(*numbers: int) -> list[BlockId]:
    """Row ids."""
    return [BlockId(number) for number in numbers]


def as_rows(run: range) -> Sequence[BlockId]:
    """Adjacent rows, as a table gives them."""
    return cast("Sequence[BlockId]", run)


def _run_within(chance: random.Random, members: set[int]) -> range:
    """Some adjacent rows of these, perhaps none."""
    if not members:
        return range(0)
    start = chance.choice(sorted(members))
    stop = start + 1
    while stop in members and chance.random() < _LONGER:
        stop += 1
    return range(start, stop)


class EvictionPolicyTests:
    """Contract of ``EvictionPolicy``; a subclass overrides ``make_policy``."""

    def make_policy(self, columns: RowColumns) -> EvictionPolicy:
        """An empty policy for these rows."""
        raise NotImplementedError

    def policy_for(self, capacity: int) -> EvictionPolicy:
        """An empty policy for rows 0 to ``capacity - 1``, each of which is a chain of its own."""
        return self.make_policy(NamedRows(capacity))

    # --- the order ----------------------------------------------------------------------------------------------------
    def test_starts_empty_and_gives_nothing(self) -> None:
        policy = self.policy_for(4)
        assert len(policy) == 0
        assert list(policy) == []
        assert policy.take(3) == []

    def test_takes_every_row_once_in_the_order_it_shows(self) -> None:
        policy = self.policy_for(8)
        policy.insert(rows(3, 1, 4))
        policy.insert(rows(0))
        policy.insert(rows(7, 6))
        shown = list(policy)
        assert sorted(shown) == [0, 1, 3, 4, 6, 7]
        assert policy.take(2) + policy.take(4) == shown
        assert len(policy) == 0

    def test_takes_as_many_as_it_promises(self) -> None:
        policy = self.policy_for(8)
        policy.insert(rows(0, 1, 2, 3, 4))
        policy.remove(rows(2))
        assert len(policy) == 4
        assert len(policy.take(len(policy))) == 4

    def test_removed_rows_are_never_taken(self) -> None:
        policy = self.policy_for(8)
        policy.insert(rows(0, 1, 2, 3))
        policy.remove(rows(1, 3))
        assert sorted(policy.take(4)) == [0, 2]

    def test_a_removed_row_can_come_back(self) -> None:
        policy = self.policy_for(2)
        policy.insert(rows(0, 1))
        policy.remove(rows(0))
        policy.insert(rows(0))
        assert sorted(policy) == [0, 1]

    def test_the_tail_of_a_released_chain_goes_before_its_head(self) -> None:
        columns = NamedRows(8)
        columns.name_chain(rows(4, 5, 6))
        policy = self.make_policy(columns)
        policy.touch(rows(4, 5, 6))
        policy.insert(rows(4, 5, 6))
        assert policy.take(3) == [6, 5, 4]

    def test_looking_changes_nothing(self) -> None:
        policy = self.policy_for(6)
        policy.touch(rows(0, 1, 2))
        policy.insert(rows(0, 1, 2))
        policy.insert(rows(5, 4))
        assert list(policy) == list(policy) == policy.take(5)

    def test_empty_batches_change_nothing(self) -> None:
        policy = self.policy_for(2)
        policy.insert(rows(1))
        for call in (policy.touch, policy.insert, policy.remove, policy.put_back, policy.forget):
            call([])
        assert policy.take(0) == []
        assert list(policy) == [1]

    # --- uses and history ---------------------------------------------------------------------------------------------
    def test_a_touch_brings_no_row_into_the_order(self) -> None:
        policy = self.policy_for(4)
        policy.touch(rows(2, 3, 2))
        assert (len(policy), list(policy), policy.take(1)) == (0, [], [])

    def test_rows_that_were_never_touched_are_in_the_order(self) -> None:
        policy = self.policy_for(4)
        policy.insert(rows(0, 1))
        policy.touch(rows(2))
        policy.insert(rows(2))
        assert sorted(policy.take(3)) == [0, 1, 2]

    def test_a_block_that_is_used_and_released_again_and_again_stands_once(self) -> None:
        policy = self.policy_for(3)
        policy.insert(rows(0, 1))
        for _ in range(20):
            policy.touch(rows(0))
            policy.remove(rows(0))
            policy.insert(rows(0))
        assert sorted(policy.take(3)) == [0, 1]

    def test_a_row_serves_another_block_after_it_was_forgotten(self) -> None:
        columns = NamedRows(3)
        columns.name_chain(rows(0, 1), "a", "b")
        policy = self.make_policy(columns)
        for label in ("c", "d", "a"):
            policy.touch(rows(0, 1))
            policy.insert(rows(0, 1))
            victims = policy.take(2)
            policy.forget(victims)
            assert victims == [1, 0]
            columns.name_chain(rows(0, 1), label, f"{label} next")
        assert list(policy) == []

    def test_blocks_that_leave_while_they_are_in_use_leave_no_trace_in_the_order(self) -> None:
        policy = self.policy_for(4)
        policy.touch(rows(0, 1))
        policy.insert(rows(0, 1))
        policy.touch(rows(1))
        policy.remove(rows(1))
        policy.forget(rows(1))
        policy.touch(rows(1))
        policy.insert(rows(1))
        assert sorted(policy.take(4)) == [0, 1]

    def test_blocks_of_one_key_in_two_groups_are_two_rows(self) -> None:
        columns = NamedRows(4)
        columns.name_chain(rows(0, 1), "a", "b", group=0)
        columns.name_chain(rows(2, 3), "a", "b", group=1)
        policy = self.make_policy(columns)
        policy.touch(rows(0, 1))
        policy.touch(rows(2, 3))
        policy.insert(rows(0, 1, 2, 3))
        policy.remove(rows(1))
        order = policy.take(3)
        assert sorted(order) == [0, 2, 3]
        assert order.index(BlockId(3)) < order.index(BlockId(2))

    # --- undoing ------------------------------------------------------------------------------------------------------
    def test_put_back_undoes_take_any_number_of_times(self) -> None:
        policy = self.policy_for(8)
        policy.insert(rows(5, 2))
        policy.touch(rows(5))
        policy.remove(rows(5))
        policy.insert(rows(5))
        policy.insert(rows(0, 3))
        before = list(policy)
        for count in (3, 1, 4, 3):
            taken = policy.take(count)
            assert taken == before[:count]
            policy.put_back(taken)
            assert (list(policy), len(policy)) == (before, 4)

    def test_rows_that_were_put_back_can_be_used_again(self) -> None:
        policy = self.policy_for(4)
        policy.insert(rows(0, 1, 2))
        policy.put_back(policy.take(2))
        policy.touch(rows(1))
        policy.remove(rows(1))
        policy.insert(rows(1))
        assert sorted(policy.take(3)) == [0, 1, 2]

    @pytest.mark.parametrize("batch", [(1, 2), (2, 1), (2, 2)])
    @pytest.mark.parametrize("verb", ["insert", "put_back"])
    def test_a_batch_that_cannot_enter_is_refused_whole(self, verb: str, batch: tuple[int, ...]) -> None:
        policy = self.policy_for(4)
        policy.insert(rows(0, 1))
        before = list(policy)
        call = {"insert": policy.insert, "put_back": policy.put_back}[verb]
        with pytest.raises(KernelError):
            call(rows(*batch))
        assert (list(policy), len(policy)) == (before, 2)

    @pytest.mark.parametrize("batch", [(1, 3), (3, 1), (1, 1)])
    def test_a_batch_that_cannot_leave_is_refused_whole(self, batch: tuple[int, ...]) -> None:
        policy = self.policy_for(4)
        policy.insert(rows(0, 1))
        before = list(policy)
        with pytest.raises(KernelError):
            policy.remove(rows(*batch))
        assert (list(policy), len(policy)) == (before, 2)

    # --- ranges -------------------------------------------------------------------------------------------------------
    @pytest.mark.parametrize("seed", _SEEDS)
    def test_a_range_means_the_list_of_its_rows(self, seed: int) -> None:
        chance = random.Random(seed)
        listed, ranged = self.policy_for(_WIDE), self.policy_for(_WIDE)
        idle: set[int] = set()
        for _ in range(_STEPS_PER_SEED):
            run = _run_within(chance, idle if chance.random() < _LEAVING else set(range(_WIDE)) - idle)
            if idle.issuperset(run):
                listed.remove(rows(*run))
                ranged.remove(as_rows(run))
                idle -= set(run)
            else:
                for policy, batch in ((listed, rows(*run)), (ranged, as_rows(run))):
                    policy.touch(batch)
                    policy.insert(batch)
                idle |= set(run)
            taken = listed.take(chance.randrange(3))
            assert ranged.take(len(taken)) == taken
            if taken and chance.random() < _LEAVING:
                listed.put_back(taken)
                ranged.put_back(taken)
            else:
                listed.forget(taken)
                ranged.forget(taken)
                idle -= set(taken)
            assert list(ranged) == list(listed)
            assert set(ranged) == idle

    def test_a_range_that_cannot_enter_or_leave_is_refused_whole(self) -> None:
        policy = self.policy_for(_WIDE)
        policy.insert(as_rows(range(10, 20)))
        before = list(policy)
        for run in (range(5, 11), range(19, 30), range(12, 14)):
            with pytest.raises(KernelError):
                policy.insert(as_rows(run))
        for run in (range(5, 11), range(19, 30), range(25, 30)):
            with pytest.raises(KernelError):
                policy.remove(as_rows(run))
        assert (list(policy), len(policy)) == (before, 10)

    # --- size and chance ----------------------------------------------------------------------------------------------
    def test_chains_of_any_depth_need_no_recursion(self) -> None:
        chain = rows(*range(_DEEP))
        columns = NamedRows(_DEEP)
        columns.name_chain(chain)
        policy = self.make_policy(columns)
        policy.touch(chain)
        policy.insert(chain)
        assert list(policy) == chain[::-1]
        policy.remove(chain[_DEEP // 2 :])
        policy.insert(chain[_DEEP // 2 :])
        assert sorted(policy.take(_DEEP)) == chain

    @pytest.mark.parametrize("seed", _SEEDS)
    def test_no_legal_sequence_of_calls_loses_or_doubles_a_row(self, seed: int) -> None:
        chance = random.Random(seed)
        driver = EvictionDriver(self.make_policy, capacity=chance.choice((3, 6, 12)))
        for _ in range(_STEPS_PER_SEED):
            driver.step(chance.choice(tuple(STEPS)), chance.randrange)
        assert all(driver.done[name] for name in STEPS), driver.done
