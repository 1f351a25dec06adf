"""Events that wait for those before them, within a bound."""

from time import process_time

from blockyard.core.ahead_buffer import AheadBuffer
from blockyard.core.events import ClearedEvent, EventOwner, OwnerKind, PublishedEvent, RemovedEvent
from blockyard.core.vocabulary import ContentKey, Epoch, EventSeq, IdentityDigest, Tier

NODE = EventOwner(OwnerKind.NODE, "node-a")


def cleared(seq: int) -> PublishedEvent:
    return PublishedEvent("node-a", Epoch(1), EventSeq(seq), ClearedEvent())


def removed(seq: int, blocks: int) -> PublishedEvent:
    keys = (ContentKey(bytes(16)),) * blocks
    return PublishedEvent(
        "node-a", Epoch(1), EventSeq(seq), RemovedEvent(NODE, Tier.G2, IdentityDigest(bytes(32)), keys)
    )


def kept(buffer: AheadBuffer, cursor: int) -> list[int]:
    return [published.seq for published in buffer.after(cursor)]


def test_what_follows_the_cursor_without_a_gap_is_taken_and_what_lies_below_is_dropped() -> None:
    buffer = AheadBuffer(100)
    assert all(buffer.keep(cleared(seq)) for seq in (2, 7, 5, 4, 4))

    assert kept(buffer, 2) == []
    assert kept(buffer, 3) == [4, 5]
    assert len(buffer) == 1
    assert kept(buffer, 9) == []
    assert len(buffer) == 0


def test_blocks_count_as_events_do_and_an_overflow_empties_the_buffer() -> None:
    buffer = AheadBuffer(6)
    assert buffer.keep(removed(3, blocks=4))

    assert not buffer.keep(removed(4, blocks=1))
    assert len(buffer) == 0
    assert buffer.keep(removed(5, blocks=5)), "all of the room is free again"


def test_what_was_taken_or_came_twice_takes_no_room() -> None:
    buffer = AheadBuffer(6)
    for seq in range(1, 20):
        assert buffer.keep(removed(seq, blocks=4))
        assert buffer.keep(removed(seq, blocks=4))
        assert kept(buffer, seq - 1) == [seq]


def seconds_behind_gaps(events: int) -> float:
    """Time of the processor for a stream of which the second half overtook the first."""
    late = [cleared(seq) for seq in range(1, events // 2 + 1)]
    early = [cleared(seq) for seq in range(events // 2 + 1, events + 1)]
    buffer, cursor = AheadBuffer(events), 0
    start = process_time()
    for published in early + late:
        buffer.keep(published)
        cursor += len(buffer.after(cursor))
    assert cursor == events
    return process_time() - start


def test_an_event_costs_the_same_however_many_wait() -> None:
    few = min(seconds_behind_gaps(1_000) for _ in range(3))
    many = min(seconds_behind_gaps(16_000) for _ in range(3))
    assert many < 80 * few, "sixteen times as many events should take about sixteen times as long"
