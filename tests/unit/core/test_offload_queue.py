"""Copies that wait or are under way, and who waits for them."""

import pytest

from blockyard.core.errors import BlockStateError
from blockyard.core.offload_queue import CancelOutcome, OfferOutcome, OffloadQueue
from blockyard.core.settlement import SettlementTicket
from blockyard.core.work_queue import QueueLimits

Queue = OffloadQueue[str, str, str]


def queue(entries: int = 8) -> Queue:
    return OffloadQueue(QueueLimits(entries))


class Waiter:
    """Somebody who waits for the copies that he wants."""

    def __init__(self) -> None:
        self.told = 0

    def offer(self, copies: Queue, *names: str, priority: int = 0) -> list[OfferOutcome]:
        with SettlementTicket(self._tell) as ticket:
            return [copies.offer(name, name, lane="", priority=priority, ticket=ticket).outcome for name in names]

    def _tell(self) -> None:
        self.told += 1


def test_a_name_that_waits_or_is_under_way_is_joined() -> None:
    copies, one, two, three = queue(), Waiter(), Waiter(), Waiter()
    assert one.offer(copies, "a") == [OfferOutcome.QUEUED]
    assert two.offer(copies, "a") == [OfferOutcome.JOINED]
    batch = copies.take(9)
    assert [copy.name for copy in batch] == ["a"]
    assert three.offer(copies, "a") == [OfferOutcome.JOINED]
    assert copies.take(9) == []
    assert (len(copies), copies.waiting) == (1, 0)
    copies.settle(batch)
    assert len(copies) == 0
    assert (one.told, two.told, three.told) == (1, 1, 1)
    assert "a" not in copies


def test_who_joins_can_make_a_copy_more_urgent() -> None:
    copies = queue()
    Waiter().offer(copies, "a", "b")
    Waiter().offer(copies, "b", priority=1)
    assert [copy.name for copy in copies.take(9)] == ["b", "a"]


def test_a_waiter_is_told_when_the_last_of_his_copies_is_gone() -> None:
    copies, waiter = queue(), Waiter()
    waiter.offer(copies, "a", "b", "c")
    first = copies.take(1)
    assert copies.cancel("b") is CancelOutcome.WITHDRAWN
    copies.settle(first)
    assert waiter.told == 0
    copies.settle(copies.take(9))
    assert waiter.told == 1


def test_what_makes_room_is_named_counted_and_over() -> None:
    copies, waiter = queue(1), Waiter()
    waiter.offer(copies, "a")
    offer = copies.offer("b", "b", lane="")
    assert (offer.outcome, offer.dropped) == (OfferOutcome.QUEUED, ("a",))
    assert waiter.told == 1
    lower = copies.offer("c", "c", lane="", priority=-1)
    assert (lower.outcome, lower.dropped) == (OfferOutcome.DROPPED, ("c",))
    assert copies.dropped == 2


def test_what_is_under_way_drains_when_it_is_cancelled() -> None:
    copies, waiter = queue(), Waiter()
    waiter.offer(copies, "a", "b")
    batch = copies.take(1)
    assert copies.cancel("a") is CancelOutcome.DRAINING
    assert copies.cancel("b") is CancelOutcome.WITHDRAWN
    assert copies.cancel("b") is CancelOutcome.UNKNOWN
    assert (waiter.told, copies.waiting, copies.under_way("a")) == (0, 0, True)
    copies.settle(batch)
    assert waiter.told == 1


def test_a_copy_settles_once() -> None:
    copies = queue()
    Waiter().offer(copies, "a", "b")
    batch = copies.take(1)
    copies.settle(batch)
    other = copies.take(1)
    with pytest.raises(BlockStateError):
        copies.settle([*other, *batch])
    assert copies.under_way("b"), "nothing was settled"


def test_a_waiter_may_offer_again_when_told() -> None:
    copies = queue()
    ticket = SettlementTicket(lambda: offers.append(copies.offer("a", "again", lane="").outcome))
    offers: list[OfferOutcome] = []
    with ticket:
        copies.offer("a", "first", lane="", ticket=ticket)
    copies.settle(copies.take(9))
    assert offers == [OfferOutcome.QUEUED]
    assert [copy.work for copy in copies.take(9)] == ["again"]
