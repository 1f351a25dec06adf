"""What a publisher answers to those who missed something: stretches of its ring, and snapshots in chunks."""

import pytest

from blockyard.core.errors import MalformedFrameError, RequestError
from blockyard.core.event_recovery import MAX_ANSWER_BYTES, ReplayOutcome, replay
from blockyard.core.events import BlockColumns, BlockScope, ClearedEvent, EventOwner, KvEvent, OwnerKind, StoredEvent
from blockyard.core.outbox import MESSAGE_OVERHEAD_BYTES, Outbox
from blockyard.core.snapshot import KEPT_SECONDS, MOST_KEPT_BYTES, SnapshotChunk, SnapshotContent, Snapshots
from blockyard.core.vocabulary import ROOT_KEY, ContentKey, Epoch, EventSeq, IdentityDigest, Tier
from blockyard.testing.clock import FakeClock
from blockyard.wire.event_codec import decode_event, encode_event

NODE = EventOwner(OwnerKind.NODE, "node-a")


def outbox(appended: int, kept: int, payload_bytes: int = 10) -> Outbox:
    def encoder(instance: str, epoch: Epoch, seq: EventSeq, event: KvEvent) -> bytes:
        return bytes(payload_bytes)

    box = Outbox("node-a", Epoch(7), kept * (payload_bytes + MESSAGE_OVERHEAD_BYTES), encoder)
    for _ in range(appended):
        box.append(ClearedEvent())
    return box


def ask(box: Outbox, first: int, last: int, epoch: int = 7) -> tuple[ReplayOutcome, list[int]]:
    answer = replay(box, Epoch(epoch), EventSeq(first), EventSeq(last))
    assert (answer.epoch, answer.newest) == (7, box.last_seq)
    return answer.outcome, [message.seq for message in answer.messages]


def test_kvbm_48_stretch_of_the_ring_is_answered_or_the_reason_why_not() -> None:
    box = outbox(appended=10, kept=6)

    assert ask(box, 5, 7) == (ReplayOutcome.EVENTS, [5, 6, 7])
    assert ask(box, 9, 12) == (ReplayOutcome.EVENTS, [9, 10])
    assert ask(box, 11, 12) == (ReplayOutcome.TOO_NEW, [])
    assert ask(box, 4, 7) == (ReplayOutcome.TOO_OLD, [])
    assert ask(box, 5, 7, epoch=6) == (ReplayOutcome.OTHER_EPOCH, [])


@pytest.mark.parametrize(("first", "last"), [(3, 2), (0, 2)])
def test_kvbm_48_stretch_that_is_none_is_refused(first: int, last: int) -> None:
    with pytest.raises(RequestError, match="stretch"):
        ask(outbox(appended=5, kept=5), first, last)


def test_answer_that_would_be_too_long_ends_early_but_never_empty() -> None:
    half = outbox(appended=4, kept=9, payload_bytes=MAX_ANSWER_BYTES // 2)
    whole = outbox(appended=4, kept=9, payload_bytes=MAX_ANSWER_BYTES + 1)

    assert ask(half, 1, 4) == (ReplayOutcome.EVENTS, [1, 2])
    assert ask(whole, 2, 4) == (ReplayOutcome.EVENTS, [2])


class Node:
    """A publisher that holds some events' worth of blocks."""

    def __init__(self, events: int, blocks: int = 1_000, most_kept_bytes: int = MOST_KEPT_BYTES) -> None:
        self.clock = FakeClock()
        self.cuts = 0
        columns = BlockColumns.of(
            tuple(ContentKey(number.to_bytes(16, "big")) for number in range(blocks)),
            (ROOT_KEY,) * blocks,
            (0,) * blocks,
        )
        stored = StoredEvent(NODE, Tier.G2, BlockScope(IdentityDigest(bytes(32))), columns)
        self.content = SnapshotContent(EventSeq(40), [stored] * events)
        self.snapshots = Snapshots("node-a", Epoch(7), self.cut, encode_event, self.clock, most_kept_bytes)

    def cut(self) -> SnapshotContent:
        self.cuts += 1
        return self.content


def test_chunks_of_a_cut_hold_the_whole_set_and_each_is_bounded() -> None:
    node = Node(events=40)
    first = node.snapshots.first_chunk()
    chunks = [first, *(node.snapshots.chunk(first.cut, index) for index in range(1, first.count))]

    payloads: list[bytes] = []
    for index, chunk in enumerate(chunks):
        assert isinstance(chunk, SnapshotChunk)
        chunk.check()
        assert (chunk.index, chunk.count, chunk.epoch, chunk.watermark) == (index, first.count, 7, 40)
        assert sum(map(len, chunk.payloads)) <= MAX_ANSWER_BYTES
        payloads += chunk.payloads
    assert first.count > 1
    assert [decode_event(payload).event for payload in payloads] == node.content.events


def test_snapshot_of_nothing_is_one_chunk() -> None:
    chunk = Node(events=0).snapshots.first_chunk()

    chunk.check()
    assert (chunk.count, chunk.payloads) == (1, ())


def test_cut_is_shared_within_a_second_and_kept_for_those_who_fetch_it() -> None:
    node = Node(events=40)
    first = node.snapshots.first_chunk()
    node.clock.advance(1.0)
    assert node.snapshots.first_chunk() == first
    node.clock.advance(0.5)

    second = node.snapshots.first_chunk()

    assert (second.cut, node.cuts) == (first.cut + 1, 2)
    node.clock.advance(KEPT_SECONDS - 1.5)
    assert node.snapshots.chunk(first.cut, 1) is not None
    node.clock.advance(0.1)
    assert node.snapshots.chunk(first.cut, 1) is None
    assert node.snapshots.chunk(second.cut, second.count) is None


def test_without_room_for_one_more_cut_the_latest_is_shared_until_an_older_one_is_forgotten() -> None:
    node = Node(events=2, most_kept_bytes=2 * 2 * (1_000 * 36 + 512))
    begun: list[int] = []
    for _ in range(4):
        begun.append(node.snapshots.first_chunk().cut)
        node.clock.advance(1.5)
    assert begun == [1, 2, 2, 2]
    assert node.snapshots.chunk(1, 0) is not None, "those who fetch the first cut are not cut off"
    node.clock.advance(KEPT_SECONDS - 6.0)
    assert (node.snapshots.first_chunk().cut, node.cuts) == (2, 2)
    node.clock.advance(0.1)
    assert (node.snapshots.first_chunk().cut, node.cuts) == (3, 3)


def test_a_cut_that_is_larger_than_all_may_be_is_the_only_one() -> None:
    node = Node(events=2, most_kept_bytes=1)
    assert node.snapshots.first_chunk().cut == 1
    node.clock.advance(KEPT_SECONDS)
    assert node.snapshots.first_chunk().cut == 1
    node.clock.advance(0.1)
    assert node.snapshots.first_chunk().cut == 2
    assert node.snapshots.chunk(1, 0) is None


@pytest.mark.parametrize("payloads", [(b"",), (b"ab", b"c"), (b"a", b"bc", b"")])
def test_chunk_with_other_payloads_than_its_checksum_is_refused(payloads: tuple[bytes, ...]) -> None:
    good = Node(events=1).snapshots.first_chunk()
    bad = SnapshotChunk(good.cut, good.epoch, good.watermark, 0, 1, good.checksum, payloads)

    with pytest.raises(MalformedFrameError, match="damaged"):
        bad.check()
