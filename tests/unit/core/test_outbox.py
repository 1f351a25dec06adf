"""The ring of numbered events."""

import pytest

from blockyard.core.events import ClearedEvent, KvEvent
from blockyard.core.outbox import MESSAGE_OVERHEAD_BYTES, Outbox, OutboxBatch
from blockyard.core.vocabulary import Epoch, EventSeq

PAYLOAD_BYTES = 72
MESSAGE_BYTES = PAYLOAD_BYTES + MESSAGE_OVERHEAD_BYTES


def encoder(instance: str, epoch: Epoch, seq: EventSeq, event: KvEvent) -> bytes:
    return f"{instance}:{epoch}:{seq}".encode().ljust(PAYLOAD_BYTES)


def outbox(messages: int) -> Outbox:
    return Outbox("node", Epoch(7), messages * MESSAGE_BYTES, encoder)


def fill(box: Outbox, count: int) -> None:
    for _ in range(count):
        box.append(ClearedEvent())


def seqs(box: Outbox, after: int, limit: int = 100) -> list[int]:
    return [message.seq for message in box.next_batch(EventSeq(after), limit).messages]


def test_numbers_are_contiguous_from_one_and_stand_in_the_messages() -> None:
    box = outbox(10)

    assert box.last_seq == 0
    assert [box.append(ClearedEvent()) for _ in range(3)] == [1, 2, 3]
    assert box.next_batch(EventSeq(1), 1).messages[0].payload.strip() == b"node:7:2"


def test_batch_starts_after_the_cursor_and_is_limited() -> None:
    box = outbox(10)
    fill(box, 5)

    assert seqs(box, 2, limit=2) == [3, 4]
    assert seqs(box, 5) == []
    assert box.next_batch(EventSeq(5), 10) == OutboxBatch((), missed=0)


def test_full_ring_overwrites_the_oldest_and_declares_the_hole() -> None:
    box = outbox(3)
    fill(box, 5)

    batch = box.next_batch(EventSeq(0), 10)
    assert [message.seq for message in batch.messages] == [3, 4, 5]
    assert batch.missed == 2
    assert box.overwritten == 2
    assert box.size_bytes == 3 * MESSAGE_BYTES


def test_published_messages_leave_without_being_counted_as_lost() -> None:
    box = outbox(3)
    fill(box, 3)
    box.mark_published(EventSeq(2))
    fill(box, 3)

    assert box.overwritten == 1
    assert box.published_seq == 2
    assert seqs(box, 2) == [4, 5, 6]


def test_published_messages_stay_for_replay_while_there_is_room() -> None:
    box = outbox(5)
    fill(box, 4)
    box.mark_published(EventSeq(4))
    box.mark_published(EventSeq(1))

    assert seqs(box, box.published_seq) == []
    assert seqs(box, 0) == [1, 2, 3, 4]


def test_message_larger_than_the_ring_is_kept_alone() -> None:
    box = Outbox("node", Epoch(7), 10, encoder)
    fill(box, 2)

    assert seqs(box, 0) == [2]
    assert box.overwritten == 1


def test_cursor_cannot_be_ahead_of_what_was_appended() -> None:
    box = outbox(3)
    fill(box, 1)
    box.mark_published(EventSeq(50))

    assert box.published_seq == 1


def test_waiting_are_those_that_are_held_and_not_published() -> None:
    box = outbox(3)
    fill(box, 2)
    assert box.waiting == 2
    box.mark_published(EventSeq(1))
    assert box.waiting == 1
    fill(box, 4)
    assert (box.waiting, box.overwritten) == (3, 2)
    box.mark_published(box.last_seq)
    assert box.waiting == 0


def test_failing_encoder_changes_nothing() -> None:
    def failing(instance: str, epoch: Epoch, seq: EventSeq, event: KvEvent) -> bytes:
        raise ValueError("cannot encode")

    box = Outbox("node", Epoch(7), 1_000, failing)
    with pytest.raises(ValueError, match="cannot encode"):
        box.append(ClearedEvent())
    assert box.last_seq == 0
