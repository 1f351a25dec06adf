"""Random offers, cancels, batches and ends against a sorted list: nothing is copied twice, nobody is told twice."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from blockyard.core.offload_queue import CancelOutcome, OfferOutcome, OffloadCopy, OffloadQueue
from blockyard.core.settlement import SettlementTicket
from blockyard.core.work_queue import QueueLimits

ENTRIES, BYTES = 6, 40
NAMES = st.integers(0, 11)
PRIORITIES = st.integers(-2, 2)


@dataclass(eq=False)
class Wish:
    """What somebody asked for, and how often he was told that it is over."""

    open: set[int] = field(default_factory=set)
    told: int = 0


@dataclass
class Item:
    """One waiting copy of the model."""

    name: int
    lane: int
    priority: int
    number: int
    size_bytes: int


class QueueMachine(RuleBasedStateMachine):
    """The queue beside a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: OffloadQueue[int, int, int] = OffloadQueue(QueueLimits(ENTRIES, BYTES))
        self.waiting: list[Item] = []
        self.under_way: dict[int, OffloadCopy[int, int]] = {}
        self.wishes: list[Wish] = []
        self.numbers = 0
        self.dropped = 0

    def over(self, name: int) -> None:
        for wish in self.wishes:
            wish.open.discard(name)

    @rule(name=NAMES, lane=st.integers(0, 2), priority=PRIORITIES, size=st.integers(0, 15))
    def offer(self, name: int, lane: int, priority: int, size: int) -> None:
        known = next((item for item in self.waiting if item.name == name), None)
        wish = Wish({name})
        self.wishes.append(wish)

        def tell() -> None:
            wish.told += 1

        with SettlementTicket(tell) as ticket:
            offer = self.queue.offer(name, lane, lane=lane, priority=priority, size_bytes=size, ticket=ticket)
        if known is not None or name in self.under_way:
            assert offer.outcome is OfferOutcome.JOINED
            if known is not None and known.priority < priority:
                self.numbers += 1
                known.priority, known.number = priority, self.numbers
            return
        self.numbers += 1
        self.waiting.append(Item(name, lane, priority, self.numbers, size))
        gone: list[int] = []
        while len(self.waiting) > ENTRIES or sum(item.size_bytes for item in self.waiting) > BYTES:
            least = min(self.waiting, key=lambda item: (item.priority, item.number))
            self.waiting.remove(least)
            gone.append(least.name)
            self.over(least.name)
        assert list(offer.dropped) == gone
        assert (offer.outcome is OfferOutcome.DROPPED) == (name in gone)
        self.dropped += len(gone)

    @rule(name=NAMES)
    def cancel(self, name: int) -> None:
        outcome = self.queue.cancel(name)
        known = next((item for item in self.waiting if item.name == name), None)
        if known is not None:
            self.waiting.remove(known)
            self.over(name)
            assert outcome is CancelOutcome.WITHDRAWN
        else:
            assert outcome is (CancelOutcome.DRAINING if name in self.under_way else CancelOutcome.UNKNOWN)

    @rule(limit=st.integers(0, 5), room=st.tuples(*[st.integers(0, 3)] * 3))
    def take(self, limit: int, room: tuple[int, int, int]) -> None:
        batch = self.queue.take(limit, lambda lane: room[lane])
        ordered = sorted(self.waiting, key=lambda item: (-item.priority, item.number))
        lane = next((item.lane for item in ordered if room[item.lane]), None)
        expected = [item for item in ordered if item.lane == lane][: min(limit, room[lane or 0])]
        assert [copy.name for copy in batch] == [item.name for item in expected]
        for copy in batch:
            assert copy.name not in self.under_way, "one copy of a name at a time"
            self.under_way[copy.name] = copy
        self.waiting = [item for item in self.waiting if item not in expected]

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.under_way)), unique=True))
        self.queue.settle(self.under_way.pop(name) for name in names)
        for name in names:
            self.over(name)

    @invariant()
    def agrees(self) -> None:
        assert self.queue.waiting == len(self.waiting)
        assert {copy.name for copy in self.queue.waiting_copies()} == {item.name for item in self.waiting}
        assert all(self.queue.under_way(name) for name in self.under_way)
        assert self.queue.dropped == self.dropped
        assert [wish.told for wish in self.wishes] == [int(not wish.open) for wish in self.wishes]


QueueMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestOffloadQueue = QueueMachine.TestCase
