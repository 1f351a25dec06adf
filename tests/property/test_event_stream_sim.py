"""Router views follow publishers that are killed and frozen, over a bus that loses, repeats, delays and reorders.

Seeded, in virtual time. During the storm a view holds for every publisher exactly what that publisher held at the
number the view has reached, and credits no old epoch; after it, what the publisher holds now.
"""

import random

import pytest

from blockyard.core.consumer_facts import ConsumerState
from blockyard.core.events import EventOwner, PublishedEvent, StoredEvent
from blockyard.core.holder_index import HolderIndex
from blockyard.core.router_view import RouterView
from blockyard.core.snapshot import SHARED_SECONDS
from blockyard.core.tier_digest import TierDigests
from blockyard.core.vocabulary import ContentKey, Epoch, EventSeq, Tier
from blockyard.testing.clock import FakeClock
from blockyard.testing.event_world import BEAT_SECONDS, CHAIN, IDENTITY, EventWorld, Publisher, digests_of
from blockyard.testing.seeds import SeedBatch, run_seeds, seed_batches

STORM_STEPS = 25
RECOVERY_SECONDS = 1.0
SETTLING_SECONDS = 8.0
"""What is late arrives, and questions that were lost are asked again."""
Moment = tuple[str, Epoch, EventSeq]
Held = tuple[tuple[EventOwner, Tier, ContentKey], ...]


class Storm:
    """One seed: everything happens to a world, and the views are compared after every step."""

    def __init__(self, seed: int) -> None:
        self.world = EventWorld(seed)
        self.history: dict[Moment, Held] = {}
        """What a publisher held after each of its events."""
        self.digests: dict[Moment, TierDigests] = {}
        self.leases: dict[str, Epoch] = {publisher.name: publisher.epoch for publisher in self.world.publishers}
        for publisher in self.world.publishers:
            self._note(publisher)

    def run(self) -> None:
        chance = self.world.chance
        for _ in range(STORM_STEPS):
            self._step(chance.choice(self.world.publishers), chance.random())
            self.world.run(chance.choice((0.0, 0.01, 0.1, 0.3, 1.0)))
            self._compare()

    def calm_down(self) -> None:
        """Faults are over: what is on its way arrives, leases are renewed, a heartbeat comes, one recovery is made."""
        world = self.world
        world.bus.calm = True
        for publisher in world.publishers:
            publisher.frozen = False
            self.leases[publisher.name] = publisher.epoch
        world.run(SETTLING_SECONDS)
        for publisher in world.publishers:
            world.lease(publisher)
        world.run(BEAT_SECONDS + RECOVERY_SECONDS)
        self._compare()
        for view in world.views:
            for publisher in world.publishers:
                self._check_followed(view, publisher)

    def _step(self, publisher: Publisher, roll: float) -> None:
        world = self.world
        if roll < 0.03:
            publisher.frozen = not publisher.frozen
        elif publisher.frozen:
            return
        elif roll < 0.06:
            messages = publisher.restart()
            self._note_all(publisher, len(messages))
            world.publish(publisher, messages)
            if world.chance.random() < 0.7:
                self.leases[publisher.name] = publisher.epoch
                world.lease(publisher)
        elif roll < 0.10:
            world.end_lease(publisher)
        elif roll < 0.16:
            world.lease(publisher)
        elif roll < 0.18:
            for view in world.views:
                view.dropped()  # the questions are lost, too
        else:
            for _ in range(world.chance.randint(1, 4)):
                messages = publisher.change()
                self._note(publisher)
                world.publish(publisher, messages)

    def _note_all(self, publisher: Publisher, announced: int) -> None:
        """A life that begins announces one block per event, in the order of the set."""
        held = tuple(publisher.held)
        for count in range(announced + 1):
            self.history[publisher.name, publisher.epoch, EventSeq(count)] = held[:count]

    def _note(self, publisher: Publisher) -> None:
        self.history[publisher.name, publisher.epoch, publisher.outbox.last_seq] = tuple(publisher.held)

    def _compare(self) -> None:
        for number, view in enumerate(self.world.views):
            found = {
                reader: match.blocks for match in view.index.longest_prefix(IDENTITY, CHAIN) for reader in match.readers
            }
            for publisher in self.world.publishers:
                mark = view.index.watermark(publisher.name)
                moment = (publisher.name, mark.epoch, mark.seq)
                assert mark.epoch <= publisher.epoch
                assert mark.seq == view.consumer(publisher.name).cursor
                if mark.epoch:
                    assert mark.held == self._held_at(moment), "a set that it held"
                is_credited = bool(mark.epoch) and self.world.heard_leases.get((number, publisher.name)) == mark.epoch
                blocks = _prefix({key for _, _, key in self.history[moment]}) if is_credited else 0
                assert found.get(publisher.engine, 0) == blocks, "credit with a live lease of this epoch only"

    def _held_at(self, moment: Moment) -> TierDigests:
        if moment not in self.digests:
            self.digests[moment] = digests_of(self.history[moment])
        return self.digests[moment]

    def _check_followed(self, view: RouterView, publisher: Publisher) -> None:
        consumer = view.consumer(publisher.name)
        mark = view.index.watermark(publisher.name)
        assert (mark.epoch, mark.seq, mark.held) == (publisher.epoch, publisher.outbox.last_seq, publisher.beat().held)
        assert consumer.state is not ConsumerState.RECOVERING
        counts = consumer.counts
        assert counts.recoveries == counts.gaps + counts.mismatches + counts.overflows
        assert counts.mismatches == 0, "nothing but lost numbers was wrong"


def _prefix(held: set[ContentKey]) -> int:
    return next((count for count, key in enumerate(CHAIN) if key not in held), len(CHAIN))


def weather(seed: int) -> None:
    storm = Storm(seed)
    storm.run()
    storm.calm_down()


@pytest.mark.parametrize("seeds", seed_batches(), ids=str)
def test_views_follow_their_publishers_through_any_storm(seeds: SeedBatch) -> None:
    run_seeds(seeds, weather)


def cuts(seed: int) -> None:
    """For every w: the set at w and the events after it make the set that all events make."""
    archive: dict[bytes, PublishedEvent] = {}
    clock = FakeClock()
    publisher = Publisher("node-a", random.Random(seed), clock, archive)
    published: list[PublishedEvent] = []
    views: list[tuple[int, HolderIndex]] = []
    for _ in range(8):
        chunk = publisher.snapshots.first_chunk()
        clock.advance(SHARED_SECONDS + 1)
        stored = [event for payload in chunk.payloads if isinstance(event := archive[payload].event, StoredEvent)]
        view = HolderIndex()
        view.restore("node-a", chunk.epoch, chunk.watermark, stored)
        views.append((chunk.watermark, view))
        published += [archive[message.payload] for message in publisher.change()]
    for watermark, view in views:
        view.apply(published)
        mark = view.watermark("node-a")
        assert (mark.seq, mark.held) == (publisher.outbox.last_seq, publisher.beat().held)
        assert view.counts.repeated == watermark, "what the cut contains is ignored"


@pytest.mark.parametrize("seeds", seed_batches(100), ids=str)
def test_snapshot_at_any_number_and_the_events_after_it_are_the_fold_of_all(seeds: SeedBatch) -> None:
    run_seeds(seeds, cuts)


def test_set_that_differs_without_a_gap_is_found_by_one_heartbeat_and_mended_by_one_recovery() -> None:
    world = EventWorld(seed=1)
    world.bus.calm = True
    publisher = world.publishers[0]
    for _ in range(20):
        world.publish(publisher, publisher.change())
    world.run(BEAT_SECONDS)

    publisher.damage()
    world.run(BEAT_SECONDS + RECOVERY_SECONDS)

    for view in world.views:
        assert view.index.watermark(publisher.name).held == publisher.beat().held
        counts = view.consumer(publisher.name).counts
        assert (counts.mismatches, counts.recoveries) == (1, 1)


def test_every_hole_in_the_numbers_is_one_recovery() -> None:
    world = EventWorld(seed=2)
    world.bus.calm = True
    publisher = world.publishers[0]
    holes = 0
    for number in range(30):
        messages = publisher.change()
        is_lost = number % 4 == 3 and bool(messages)
        holes += is_lost
        world.publish(publisher, [] if is_lost else messages)
        world.run(1.0)

    world.run(BEAT_SECONDS + RECOVERY_SECONDS)

    assert holes > 2
    for view in world.views:
        assert view.index.watermark(publisher.name).held == publisher.beat().held
        counts = view.consumer(publisher.name).counts
        assert counts.recoveries == counts.gaps == holes
