"""Events on their way to a bus that fails, refuses, and comes back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from blockyard.core.errors import FrameTooLargeError, UnavailableError
from blockyard.core.events import ClearedEvent
from blockyard.core.outbox import Outbox
from blockyard.core.vocabulary import Epoch
from blockyard.runtime.bus_values import BusState, OutgoingMessage, PublishOutcome, StreamSpec
from blockyard.runtime.telemetry import Metrics
from blockyard.wire.event_codec import decode_event, encode_event
from blockyard_block_manager.event_publisher import EventPublisher

WAIT_SECONDS = 5.0


@dataclass
class Bus:
    """A bus that acknowledges what the next outcome says, else everything."""

    outcomes: list[PublishOutcome] = field(default_factory=list)
    away: bool = False
    attempts: int = 0
    stored: list[OutgoingMessage] = field(default_factory=list)
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    listener: Callable[[BusState], None] = lambda state: None
    meanwhile: Callable[[], None] = lambda: None

    def listen(self, listener: Callable[[BusState], None]) -> None:
        self.listener = listener

    async def ensure_stream(self, spec: StreamSpec) -> None:
        self.attempts += 1
        self.tried.set()
        if self.away:
            raise UnavailableError("away")

    async def publish_window(self, messages: Sequence[OutgoingMessage]) -> PublishOutcome:
        await asyncio.sleep(0)
        self.meanwhile()
        outcome = self.outcomes.pop(0) if self.outcomes else PublishOutcome(len(messages))
        self.stored += messages[: outcome.acked]
        return outcome


@dataclass
class Name:
    """Whether the node may speak for its name."""

    owned: bool = True


@dataclass
class Setting:
    bus: Bus
    outbox: Outbox
    publisher: EventPublisher
    metrics: Metrics
    name: Name

    def append(self, count: int) -> None:
        for _ in range(count):
            self.publisher.appended(self.outbox.append(ClearedEvent()))

    async def published(self, seq: int) -> list[int]:
        async with asyncio.timeout(WAIT_SECONDS):
            while self.outbox.published_seq < seq:
                await asyncio.sleep(0)
        return [decode_event(message.data).seq for message in self.bus.stored]


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    bus, metrics = Bus(), Metrics("test")
    outbox = Outbox("node", Epoch(7), 2_000, encode_event)
    stream = StreamSpec(name="S", subjects=("s.>",), max_bytes=1_000)
    name = Name()
    publisher = EventPublisher(outbox, bus, stream, "s.node", metrics, may_speak=lambda: name.owned)
    task = asyncio.create_task(publisher.run())
    yield Setting(bus, outbox, publisher, metrics, name)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_events_are_published_in_order_under_names_of_their_own(setting: Setting) -> None:
    setting.append(3)
    assert await setting.published(3) == [1, 2, 3]
    assert [message.message_id for message in setting.bus.stored] == ["node:7:1", "node:7:2", "node:7:3"]
    assert {message.subject for message in setting.bus.stored} == {"s.node"}


async def test_publication_goes_on_from_the_first_that_was_not_acknowledged(setting: Setting) -> None:
    setting.bus.outcomes = [PublishOutcome(2, UnavailableError("gone"))]
    setting.append(4)
    assert await setting.published(4) == [1, 2, 3, 4]
    assert setting.metrics.registry.get_sample_value("blockyard_publish_failures_total") == 1


async def test_events_wait_while_the_bus_is_away_and_go_out_when_it_is_back(setting: Setting) -> None:
    setting.bus.away = True
    setting.append(2)
    await asyncio.wait_for(setting.bus.tried.wait(), WAIT_SECONDS)
    assert setting.outbox.published_seq == 0
    setting.bus.away = False
    setting.bus.listener(BusState.CONNECTED)
    assert await setting.published(2) == [1, 2]


async def test_a_bus_that_is_away_is_not_tried_at_every_event(setting: Setting) -> None:
    setting.bus.away = True
    for _ in range(50):
        setting.append(1)
        await asyncio.sleep(0)
    assert 1 <= setting.bus.attempts <= 3


async def test_what_the_ring_dropped_meanwhile_is_a_hole_and_counted(setting: Setting) -> None:
    setting.bus.away = True
    setting.append(40)
    await asyncio.wait_for(setting.bus.tried.wait(), WAIT_SECONDS)
    setting.bus.away = False
    setting.bus.listener(BusState.CONNECTED)
    numbers = await setting.published(40)
    assert numbers[0] > 1
    assert numbers == list(range(numbers[0], 41))
    setting.append(1)
    await setting.published(41)
    overwritten = setting.metrics.registry.get_sample_value("blockyard_events_overwritten_total")
    assert overwritten == numbers[0] - 1


async def test_what_a_bus_that_never_catches_up_loses_is_counted_while_it_goes_on(setting: Setting) -> None:
    # With every window more comes than the ring holds: the publisher is never done, and nothing ever fails.
    setting.bus.meanwhile = lambda: setting.append(40)
    setting.append(1)
    async with asyncio.timeout(WAIT_SECONDS):
        while len(setting.bus.stored) < 60:
            await asyncio.sleep(0)
    overwritten = setting.metrics.registry.get_sample_value("blockyard_events_overwritten_total")
    assert overwritten is not None
    assert setting.outbox.overwritten - 40 <= overwritten <= setting.outbox.overwritten
    assert overwritten > 0


async def test_an_event_that_can_never_be_published_does_not_stop_the_others(setting: Setting) -> None:
    setting.bus.outcomes = [PublishOutcome(1, FrameTooLargeError("too large"))]
    setting.append(3)
    assert await setting.published(3) == [1, 3]
    value = setting.metrics.registry.get_sample_value
    assert value("blockyard_publish_failures_total") == 1
    assert value("blockyard_events_overwritten_total") == 1, "appended is published, waiting or lost"


async def test_windows_are_timed_and_their_failures_named(setting: Setting) -> None:
    setting.bus.outcomes = [PublishOutcome(1, UnavailableError("gone"))]
    setting.append(2)
    await setting.published(2)
    value = setting.metrics.registry.get_sample_value
    assert value("blockyard_dependency_seconds_count", {"name": "nats", "operation": "publish"}) == 2
    assert value("blockyard_dependency_errors_total", {"name": "nats", "reason": "unavailable"}) == 1


async def test_nothing_goes_out_under_a_name_that_is_not_the_nodes(setting: Setting) -> None:
    setting.name.owned = False
    setting.append(2)
    await asyncio.wait_for(setting.bus.tried.wait(), WAIT_SECONDS)
    for _ in range(5):
        await asyncio.sleep(0)
    assert setting.bus.stored == []
    setting.name.owned = True
    setting.publisher.lease_changed()
    assert await setting.published(2) == [1, 2]
