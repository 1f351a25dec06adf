"""How a consumer follows one publisher: cursor, hold, recovery, epochs, lease."""

import pytest

from blockyard.core.consumer_facts import ConsumerLimits, ConsumerState
from blockyard.core.consumer_steps import (
    ApplyEvents,
    AskReplay,
    AskSnapshot,
    Credit,
    Discredit,
    DropSet,
    RestoreSet,
    Step,
)
from blockyard.core.event_consumer import EventConsumer
from blockyard.core.event_recovery import Heartbeat, ReplayAnswer, ReplayOutcome
from blockyard.core.events import BlockColumns, BlockScope, EventOwner, OwnerKind, PublishedEvent, StoredEvent
from blockyard.core.holder_index import Watermark
from blockyard.core.outbox import OutboxMessage
from blockyard.core.snapshot import SnapshotChunk, checksum_of
from blockyard.core.tier_digest import NOTHING_HELD, TierDigest
from blockyard.core.vocabulary import ROOT_KEY, ContentKey, Epoch, EventSeq, IdentityDigest, Tier
from blockyard.testing.clock import FakeClock

NODE = EventOwner(OwnerKind.NODE, "node-a")
ENGINE = EventOwner(OwnerKind.ENGINE, "engine-0")
OTHER = (TierDigest(1, 5), *NOTHING_HELD[1:])


def event(seq: int, epoch: int = 1, instance: str = "node-a") -> PublishedEvent:
    columns = BlockColumns.of((ContentKey(seq.to_bytes(16, "big")),), (ROOT_KEY,), (0,))
    stored = StoredEvent(NODE, Tier.G2, BlockScope(IdentityDigest(bytes(32))), columns)
    return PublishedEvent(instance, Epoch(epoch), EventSeq(seq), stored)


def decode(payload: bytes) -> PublishedEvent:
    """A number, and where it is not of this publisher and life, also epoch and name."""
    seq, epoch, instance = (payload if b" " in payload else payload + b" 1 node-a").decode().split()
    return event(int(seq), int(epoch), instance)


def answer(first: int, last: int, newest: int) -> ReplayAnswer:
    messages = tuple(OutboxMessage(EventSeq(seq), b"%d" % seq) for seq in range(first, last + 1))
    return ReplayAnswer(ReplayOutcome.EVENTS, Epoch(1), EventSeq(newest), messages)


def no_events(outcome: ReplayOutcome, newest: int) -> ReplayAnswer:
    return ReplayAnswer(outcome, Epoch(1), EventSeq(newest))


def chunk(watermark: int, index: int = 0, count: int = 1, epoch: int = 1) -> SnapshotChunk:
    payloads = (b"%d" % (100 + index),)
    return SnapshotChunk(3, Epoch(epoch), EventSeq(watermark), index, count, checksum_of(payloads), payloads)


def beat(last_seq: int, epoch: int = 1, held: tuple[TierDigest, ...] = NOTHING_HELD) -> Heartbeat:
    first, second, third, fourth = held
    return Heartbeat("node-a", Epoch(epoch), EventSeq(last_seq), (first, second, third, fourth))


def applied(steps: list[Step]) -> list[int]:
    return [published.seq for step in steps if isinstance(step, ApplyEvents) for published in step.events]


class Followed:
    """A consumer with its clock, live at some number."""

    def __init__(self, cursor: int = 3, limits: ConsumerLimits = ConsumerLimits()) -> None:  # noqa: B008
        self.clock = FakeClock()
        self.consumer = EventConsumer("node-a", decode, self.clock, limits)
        self.consumer.leased(Epoch(1), (ENGINE,))
        self.consumer.received(event(seq) for seq in range(1, cursor + 1))

    def later(self, seconds: float) -> list[Step]:
        self.clock.advance(seconds)
        return self.consumer.time_passed()

    def recovering(self) -> AskReplay:
        """Number 5 came, 4 did not."""
        self.consumer.received([event(5)])
        (question,) = self.later(0.5)
        assert isinstance(question, AskReplay)
        return question


def test_kvbm_47_events_apply_once_in_order_and_a_gap_is_recovered_while_live_ones_wait() -> None:
    clock = FakeClock()
    consumer = EventConsumer("node-a", decode, clock)

    assert applied(consumer.received([event(1), event(2), event(3)])) == [1, 2, 3]
    assert applied(consumer.received([event(2), event(3)])) == []
    assert consumer.counts.repeated == 2
    assert applied(consumer.received([event(5)])) == []
    clock.advance(0.5)
    (question,) = consumer.time_passed()
    assert isinstance(question, AskReplay)
    assert (question.epoch, question.first, question.last) == (1, 4, 5)
    assert applied(consumer.received([event(6), event(6)])) == []
    assert applied(consumer.replayed(question.ask, answer(4, 5, newest=6))) == [4, 5, 6]
    assert consumer.state is ConsumerState.LIVE


def test_gap_that_closes_by_itself_is_no_recovery() -> None:
    followed = Followed()

    assert followed.consumer.received([event(5)]) == []
    assert followed.later(0.4) == []
    assert applied(followed.consumer.received([event(4)])) == [4, 5]
    assert followed.later(10) == []
    assert followed.consumer.counts.recoveries == 0


def test_what_is_still_in_flight_after_a_replay_is_not_asked_for_again() -> None:
    followed = Followed()
    question = followed.recovering()

    steps = followed.consumer.replayed(question.ask, answer(4, 5, newest=9))

    assert applied(steps) == [4, 5]
    assert not any(isinstance(step, AskReplay) for step in steps)
    assert followed.consumer.state is ConsumerState.LIVE


def test_replay_that_is_too_old_becomes_a_snapshot() -> None:
    followed = Followed()
    question = followed.recovering()

    (ask,) = followed.consumer.replayed(question.ask, no_events(ReplayOutcome.TOO_OLD, newest=5))
    assert isinstance(ask, AskSnapshot)
    (restore,) = followed.consumer.chunk_came(ask.ask, chunk(watermark=6))

    assert isinstance(restore, RestoreSet)
    assert restore.watermark == followed.consumer.cursor == 6


def test_chunks_are_asked_for_one_after_the_other_and_put_in_place_together() -> None:
    followed = Followed()
    (ask,) = followed.consumer.replayed(followed.recovering().ask, no_events(ReplayOutcome.TOO_OLD, newest=5))
    assert isinstance(ask, AskSnapshot)

    (ask,) = followed.consumer.chunk_came(ask.ask, chunk(watermark=6, index=0, count=2))
    assert isinstance(ask, AskSnapshot)
    assert (ask.cut, ask.index) == (3, 1)
    (restore,) = followed.consumer.chunk_came(ask.ask, chunk(watermark=6, index=1, count=2))

    assert isinstance(restore, RestoreSet)
    assert len(restore.events) == 2


def test_cut_that_is_older_than_the_cursor_is_followed_by_what_it_lacks() -> None:
    followed = Followed(cursor=5)
    (ask,) = followed.consumer.heard(beat(5, held=OTHER), Watermark(Epoch(1), EventSeq(5)))
    assert isinstance(ask, AskSnapshot)

    restore, question = followed.consumer.chunk_came(ask.ask, chunk(watermark=3))

    assert isinstance(restore, RestoreSet)
    assert isinstance(question, AskReplay)
    assert (question.first, question.last) == (4, 5)


def test_cut_that_is_older_than_the_ring_is_not_asked_for_again_at_once() -> None:
    followed = Followed(cursor=5)
    (ask,) = followed.consumer.heard(beat(5, held=OTHER), Watermark(Epoch(1), EventSeq(5)))
    assert isinstance(ask, AskSnapshot)
    _, question = followed.consumer.chunk_came(ask.ask, chunk(watermark=3))
    assert isinstance(question, AskReplay)

    assert followed.consumer.replayed(question.ask, no_events(ReplayOutcome.TOO_OLD, newest=5)) == []
    assert followed.later(1.9) == []
    (again,) = followed.later(0.1)

    assert isinstance(again, AskSnapshot)
    assert followed.consumer.chunk_came(again.ask, chunk(watermark=5))
    assert followed.consumer.state is ConsumerState.LIVE


def test_damaged_chunk_is_not_believed_and_the_snapshot_is_asked_for_again() -> None:
    followed = Followed()
    (ask,) = followed.consumer.replayed(followed.recovering().ask, no_events(ReplayOutcome.TOO_OLD, newest=5))
    assert isinstance(ask, AskSnapshot)
    good = chunk(watermark=6)
    bad = SnapshotChunk(good.cut, good.epoch, good.watermark, 0, 1, good.checksum, (b"7",))

    assert followed.consumer.chunk_came(ask.ask, bad) == []
    (again,) = followed.later(2.0)

    assert isinstance(again, AskSnapshot)


@pytest.mark.parametrize("payload", [b"7 1 node-b", b"7 2 node-a"])
def test_chunk_with_the_set_of_another_publisher_or_life_is_not_believed(payload: bytes) -> None:
    followed = Followed()
    (ask,) = followed.consumer.replayed(followed.recovering().ask, no_events(ReplayOutcome.TOO_OLD, newest=5))
    assert isinstance(ask, AskSnapshot)
    foreign = SnapshotChunk(3, Epoch(1), EventSeq(6), 0, 1, checksum_of((payload,)), (payload,))

    assert followed.consumer.chunk_came(ask.ask, foreign) == []
    (again,) = followed.later(2.0)

    assert isinstance(again, AskSnapshot)


def test_question_without_an_answer_is_asked_again_ever_later_and_then_for_a_snapshot() -> None:
    followed = Followed()
    first = followed.recovering()

    (second,) = followed.later(2.0)
    assert isinstance(second, AskReplay)
    assert followed.later(2.0) == []
    (third,) = followed.later(2.0)
    assert isinstance(third, AskSnapshot)
    assert followed.consumer.replayed(first.ask, answer(4, 5, newest=5)) == [], "an answer to an old question"
    assert followed.consumer.counts.recoveries == 1


def test_long_gap_is_a_snapshot_at_once() -> None:
    followed = Followed(limits=ConsumerLimits(replay_events=10))
    followed.consumer.received([event(14)])

    (question,) = followed.later(0.5)

    assert isinstance(question, AskSnapshot)


def test_buffer_that_overflows_restarts_the_recovery() -> None:
    followed = Followed(limits=ConsumerLimits(buffer_weight=6))
    first = followed.recovering()

    followed.consumer.received([event(7), event(8)])
    (second,) = followed.consumer.received([event(9)])

    assert isinstance(second, AskReplay)
    assert (second.first, second.last) == (4, 9)
    assert followed.consumer.replayed(first.ask, answer(4, 5, newest=9)) == []
    assert applied(followed.consumer.replayed(second.ask, answer(4, 9, newest=9))) == [4, 5, 6, 7, 8, 9]


def test_heartbeat_that_is_ahead_is_a_gap_and_one_with_another_digest_a_snapshot() -> None:
    followed = Followed()

    assert followed.consumer.heard(beat(4), Watermark(Epoch(1), EventSeq(3))) == []
    (question,) = followed.later(0.5)
    assert isinstance(question, AskReplay)
    followed.consumer.replayed(question.ask, answer(4, 4, newest=4))
    assert followed.consumer.heard(beat(4), Watermark(Epoch(1), EventSeq(4))) == []
    (ask,) = followed.consumer.heard(beat(4, held=OTHER), Watermark(Epoch(1), EventSeq(4)))

    assert isinstance(ask, AskSnapshot)
    assert followed.consumer.counts.mismatches == 1


def test_digest_that_stays_different_is_a_snapshot_ever_less_often() -> None:
    followed = Followed()
    asked = 0
    for _ in range(60):
        for step in followed.consumer.heard(beat(3, held=OTHER), Watermark(Epoch(1), EventSeq(3))):
            assert isinstance(step, AskSnapshot)
            asked += 1
            followed.consumer.chunk_came(step.ask, chunk(watermark=3))
        followed.clock.advance(2)

    assert 4 <= asked <= 8


def test_view_that_could_not_keep_everything_is_not_compared() -> None:
    followed = Followed()

    assert followed.consumer.heard(beat(3, held=OTHER), Watermark(Epoch(1), EventSeq(3), is_whole=False)) == []


def test_drop_of_the_subscription_asks_for_all_up_to_the_newest() -> None:
    followed = Followed()

    (question,) = followed.consumer.dropped()
    assert isinstance(question, AskReplay)
    (more,) = [
        step
        for step in followed.consumer.replayed(question.ask, answer(4, 4, newest=6))
        if not isinstance(step, ApplyEvents)
    ]

    assert isinstance(more, AskReplay)
    assert (more.first, more.last) == (5, 6)


def test_drop_that_lost_nothing_ends_with_the_answer_that_there_is_nothing_newer() -> None:
    followed = Followed()
    (question,) = followed.consumer.dropped()
    assert isinstance(question, AskReplay)

    assert followed.consumer.replayed(question.ask, no_events(ReplayOutcome.TOO_NEW, newest=3)) == []
    assert followed.consumer.state is ConsumerState.LIVE


@pytest.mark.parametrize("messenger", ["event", "beat", "lease", "replay", "chunk"])
def test_higher_epoch_ends_the_old_one_whoever_tells_of_it(messenger: str) -> None:
    followed = Followed()
    consumer = followed.consumer
    ask = followed.recovering().ask
    if messenger == "event":
        steps = consumer.received([event(1, epoch=2)])
    elif messenger == "beat":
        steps = consumer.heard(beat(0, epoch=2), Watermark(Epoch(1), EventSeq(3)))
    elif messenger == "lease":
        steps = consumer.leased(Epoch(2), (ENGINE,))
    elif messenger == "replay":
        steps = consumer.replayed(ask, ReplayAnswer(ReplayOutcome.OTHER_EPOCH, Epoch(2), EventSeq(0)))
    else:
        (asked,) = consumer.replayed(ask, no_events(ReplayOutcome.TOO_OLD, newest=5))
        assert isinstance(asked, AskSnapshot)
        steps = consumer.chunk_came(asked.ask, chunk(watermark=1, epoch=2))

    assert steps[:2] == [DropSet("node-a", Epoch(2)), Discredit("node-a")]
    assert (Credit("node-a", (ENGINE,)) in steps) == (messenger == "lease")
    assert not any(isinstance(step, AskReplay | AskSnapshot | RestoreSet) for step in steps)
    assert consumer.received([event(4)]) == [], "lower epochs are refused for ever"
    assert consumer.leased(Epoch(1), (ENGINE,)) == []
    assert consumer.counts.stale == 2


def test_event_of_another_publisher_is_refused() -> None:
    followed = Followed()

    assert followed.consumer.received([event(4, instance="node-b")]) == []
    assert followed.consumer.counts.foreign == 1


def test_set_without_a_lease_is_followed_for_a_minute_without_credit_and_then_given_up() -> None:
    followed = Followed()

    assert followed.consumer.lease_ended() == [Discredit("node-a")]
    assert followed.later(59) == []
    assert applied(followed.consumer.received([event(4)])) == [4]
    assert followed.later(1) == [DropSet("node-a", Epoch(1))]
    assert followed.consumer.received([event(5)]) == []
    assert followed.consumer.leased(Epoch(1), (ENGINE,)) == [Credit("node-a", (ENGINE,))]
    (question,) = followed.later(0.5)
    assert isinstance(question, AskReplay)
    assert (question.first, question.last) == (1, 5)


def test_lease_that_comes_back_in_time_keeps_the_set() -> None:
    followed = Followed()
    followed.consumer.lease_ended()
    followed.later(59)

    assert followed.consumer.leased(Epoch(1), (ENGINE,)) == [Credit("node-a", (ENGINE,))]
    assert followed.later(600) == []
    assert followed.consumer.cursor == 3


def test_wake_up_is_due_exactly_when_something_is() -> None:
    followed = Followed()
    now = followed.clock.monotonic()

    assert followed.consumer.wake_at == float("inf")
    followed.consumer.received([event(5)])
    assert followed.consumer.wake_at == now + 0.5
    followed.later(0.5)
    assert followed.consumer.wake_at == now + 0.5 + 2.0
    followed.consumer.lease_ended()
    assert followed.consumer.wake_at == now + 0.5 + 2.0
