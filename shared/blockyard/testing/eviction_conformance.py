"""Behaviour that every eviction policy must show: inherit, give ``make_policy``, and the tests run."""

from blockyard.core.eviction.base import EvictionPolicy
from blockyard.core.vocabulary import BlockId


def rows(*numbers: int) -> list[BlockId]:
    """Row ids."""
    return [BlockId(number) for number in numbers]


class EvictionPolicyTests:
    """Contract of ``EvictionPolicy``; a subclass overrides ``make_policy``."""

    def make_policy(self, capacity: int) -> EvictionPolicy:
        """An empty policy for rows 0 to ``capacity - 1``."""
        raise NotImplementedError

    def test_starts_empty_and_gives_nothing(self) -> None:
        policy = self.make_policy(4)
        assert len(policy) == 0
        assert list(policy) == []
        assert policy.take(3) == []

    def test_takes_every_row_once_in_the_order_it_shows(self) -> None:
        policy = self.make_policy(8)
        policy.insert(rows(3, 1, 4))
        policy.insert(rows(0))
        policy.insert(rows(7, 6))
        shown = list(policy)
        assert sorted(shown) == [0, 1, 3, 4, 6, 7]
        assert policy.take(2) + policy.take(4) == shown
        assert len(policy) == 0

    def test_takes_as_many_as_it_promises(self) -> None:
        policy = self.make_policy(8)
        policy.insert(rows(0, 1, 2, 3, 4))
        policy.remove(rows(2))
        assert len(policy) == 4
        assert len(policy.take(len(policy))) == 4

    def test_removed_rows_are_never_taken(self) -> None:
        policy = self.make_policy(8)
        policy.insert(rows(0, 1, 2, 3))
        policy.remove(rows(1, 3))
        assert sorted(policy.take(4)) == [0, 2]

    def test_a_removed_row_can_come_back(self) -> None:
        policy = self.make_policy(2)
        policy.insert(rows(0, 1))
        policy.remove(rows(0))
        policy.insert(rows(0))
        assert sorted(policy) == [0, 1]

    def test_put_back_undoes_take(self) -> None:
        policy = self.make_policy(8)
        policy.insert(rows(5, 2))
        policy.insert(rows(0, 3))
        before = list(policy)
        policy.put_back(policy.take(3))
        assert list(policy) == before
        assert len(policy) == 4

    def test_empty_batches_change_nothing(self) -> None:
        policy = self.make_policy(2)
        policy.insert(rows(1))
        policy.insert([])
        policy.remove([])
        policy.put_back([])
        assert policy.take(0) == []
        assert list(policy) == [1]

    def test_the_tail_of_a_released_chain_goes_before_its_head(self) -> None:
        policy = self.make_policy(8)
        policy.insert(rows(4, 5, 6))
        order = list(policy)
        assert order.index(BlockId(6)) < order.index(BlockId(5)) < order.index(BlockId(4))
