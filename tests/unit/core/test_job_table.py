"""Jobs of a block-manager: numbers, states, deadlines, settlement."""

import pytest

from blockyard.core.errors import JobWindowFullError, NotReadyError
from blockyard.core.job_table import JobAction, JobLimits, JobState, JobTable, JobVerb
from blockyard.core.jobs import LAST_HOPS, JobId, JobPhase, Refusal
from blockyard.core.vocabulary import Epoch, JobKind, JobSeq, Lane, WorkerRole
from blockyard.testing.clock import FakeClock

OW = WorkerRole.OFFLOAD_WORKER
RT = WorkerRole.REMOTE_TIER
LIFE = Epoch(50)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def table(clock: FakeClock) -> JobTable:
    made = JobTable(Epoch(9), clock, JobLimits(unsettled_limit=6, seq_window=8))
    made.attached(OW, LIFE)
    return made


def plan(table: JobTable, ttl_ms: int = 10_000) -> JobSeq:
    return table.plan(OW, JobKind.G1_G2, Lane.STORE, ttl_ms)


def load(table: JobTable) -> JobSeq:
    return table.plan(OW, JobKind.G2_G1, Lane.LOAD, 10_000)


def state(table: JobTable, seq: JobSeq) -> JobState:
    facts = table.facts(seq)
    assert facts is not None
    return facts.state


def test_numbers_count_from_one() -> None:
    table = JobTable(Epoch(1), FakeClock())
    table.attached(OW, LIFE)

    assert [plan(table) for _ in range(3)] == [1, 2, 3]
    assert table.settled_below == 1


def test_result_settles_exactly_once(table: JobTable) -> None:
    seq = plan(table)
    table.sent(seq)
    table.accepted(seq)

    assert table.settle(seq, LIFE)
    assert not table.settle(seq, LIFE)
    assert table.settled_below == 2


def test_result_before_the_answer_to_submit_settles(table: JobTable) -> None:
    seq = plan(table)
    table.sent(seq)

    assert table.settle(seq, LIFE)
    table.accepted(seq)
    assert not table.refused(seq, Refusal.TOMBSTONE)
    assert len(table) == 0


def test_result_of_another_life_of_the_worker_settles_nothing(table: JobTable) -> None:
    seq = plan(table)

    assert not table.settle(seq, Epoch(LIFE - 1))
    assert len(table) == 1


def test_settled_below_is_the_lowest_open_number(table: JobTable) -> None:
    first, second, third = plan(table), plan(table), plan(table)

    table.settle(second, LIFE)
    assert table.settled_below == first
    table.settle(first, LIFE)
    assert table.settled_below == third


def test_unanswered_submit_is_sent_again_a_few_times_and_cancelled_at_its_deadline(
    table: JobTable, clock: FakeClock
) -> None:
    seq = plan(table, ttl_ms=1_000)
    table.sent(seq)
    seen: list[tuple[float, JobVerb]] = []
    began = clock.monotonic()
    while JobVerb.CANCEL not in [verb for _, verb in seen]:
        clock.advance(0.2)
        for action in table.due(clock.monotonic()):
            seen.append((round(clock.monotonic() - began, 1), action.verb))
            if action.verb is JobVerb.RESEND:
                table.sent(seq)

    assert seen == [(0.2, JobVerb.RESEND), (0.4, JobVerb.RESEND), (0.6, JobVerb.RESEND), (1.0, JobVerb.CANCEL)]
    assert state(table, seq) is JobState.CANCELLING


def test_a_worker_that_answers_late_carries_the_job_out(table: JobTable, clock: FakeClock) -> None:
    seq = plan(table)
    for _ in range(4):
        table.sent(seq)
        clock.advance(0.2)

    table.accepted(seq)

    assert state(table, seq) is JobState.ACTIVE
    assert table.settle(seq, LIFE)


def test_a_submit_told_often_enough_is_told_again_after_a_reconnect(table: JobTable, clock: FakeClock) -> None:
    seq = plan(table)
    for _ in range(4):
        table.sent(seq)
    clock.advance(0.2)
    assert table.due(clock.monotonic()) == []

    table.attached(OW, LIFE)

    assert [action.verb for action in table.due(clock.monotonic())] == [JobVerb.RESEND]


def test_nothing_is_due_between_periods(table: JobTable, clock: FakeClock) -> None:
    seq = plan(table)
    table.sent(seq)

    assert table.due(clock.monotonic()) == []
    table.accepted(seq)
    clock.advance(1.0)
    assert table.due(clock.monotonic()) == []


def test_deadline_asks_for_the_end_but_settles_nothing(table: JobTable, clock: FakeClock) -> None:
    seq = plan(table, ttl_ms=500)
    table.sent(seq)
    table.accepted(seq)
    clock.advance(0.5)

    assert table.due(clock.monotonic()) == [JobAction(JobVerb.CANCEL, seq, OW)]
    assert len(table) == 1
    assert table.settle(seq, LIFE)


def test_cancelled_job_is_settled_by_the_word_that_it_was_never_seen(table: JobTable, clock: FakeClock) -> None:
    seq = plan(table)
    table.sent(seq)
    table.cancel(seq)

    assert table.due(clock.monotonic()) == [JobAction(JobVerb.CANCEL, seq, OW)]
    assert not table.state_told(seq, JobPhase.RUNNING)
    assert not table.state_told(seq, JobPhase.ENDED)
    assert table.state_told(seq, JobPhase.UNSEEN)
    assert not table.state_told(seq, JobPhase.UNSEEN)


def test_busy_worker_is_asked_again_after_its_time(table: JobTable, clock: FakeClock) -> None:
    seq = plan(table)
    table.sent(seq)
    table.busy(seq, retry_ms=50)
    clock.advance(0.05)

    assert table.due(clock.monotonic()) == [JobAction(JobVerb.RESEND, seq, OW)]


def test_worker_that_stays_busy_is_asked_until_the_deadline(table: JobTable, clock: FakeClock) -> None:
    seq = plan(table)
    for _ in range(20):
        table.sent(seq)
        table.busy(seq, retry_ms=50)
        clock.advance(0.05)
        assert table.due(clock.monotonic()) == [JobAction(JobVerb.RESEND, seq, OW)]
    table.sent(seq)
    clock.advance(0.2)
    assert table.due(clock.monotonic()) == [JobAction(JobVerb.RESEND, seq, OW)]


def test_late_busy_does_not_take_back_an_accepted_job(table: JobTable) -> None:
    seq = plan(table)
    table.sent(seq)
    table.accepted(seq)
    table.busy(seq, retry_ms=50)

    assert state(table, seq) is JobState.ACTIVE


@pytest.mark.parametrize("reason", [reason for reason in Refusal if reason is not Refusal.STALE_EPOCH])
def test_refusal_settles(table: JobTable, reason: Refusal) -> None:
    seq = plan(table)
    table.sent(seq)

    assert table.refused(seq, reason)
    assert not table.refused(seq, reason)


def test_refusal_by_a_newer_life_settles_nothing(table: JobTable) -> None:
    seq = plan(table)
    table.sent(seq)

    assert not table.refused(seq, Refusal.STALE_EPOCH)
    assert len(table) == 1


def test_higher_epoch_of_the_worker_loses_its_jobs(table: JobTable) -> None:
    first, second = plan(table), plan(table)
    table.sent(first)

    assert table.attached(OW, Epoch(LIFE + 1)).jobs == (first, second)
    assert not table.settle(first, LIFE)
    assert len(table) == 0
    assert table.settled_below == 3


def test_lower_epoch_of_the_worker_is_refused(table: JobTable) -> None:
    with pytest.raises(NotReadyError):
        table.attached(OW, Epoch(LIFE - 1))


def test_reconnect_asks_about_every_open_job_at_once(table: JobTable, clock: FakeClock) -> None:
    sent, active, ending, planned = plan(table), plan(table), plan(table), plan(table)
    table.sent(sent)
    table.sent(active)
    table.accepted(active)
    table.sent(ending)
    table.cancel(ending)
    table.disconnected(OW)
    clock.advance(1.0)
    assert table.due(clock.monotonic()) == []

    assert table.attached(OW, LIFE).jobs == ()
    assert table.due(clock.monotonic()) == [
        JobAction(JobVerb.RESEND, sent, OW),
        JobAction(JobVerb.POLL, active, OW),
        JobAction(JobVerb.CANCEL, ending, OW),
    ]
    assert not table.state_told(active, JobPhase.RUNNING)
    assert state(table, active) is JobState.ACTIVE
    assert state(table, planned) is JobState.PLANNED


def test_lost_connection_settles_nothing_even_after_the_deadline(table: JobTable, clock: FakeClock) -> None:
    plan(table, ttl_ms=10)
    table.disconnected(OW)
    clock.advance(60.0)

    assert table.due(clock.monotonic()) == []
    assert len(table) == 1


def test_proven_end_of_a_worker_settles_its_jobs(table: JobTable) -> None:
    seq = plan(table)

    assert table.worker_lost(OW, Epoch(LIFE - 1)).jobs == ()
    assert table.can_plan(OW, Lane.LOAD)
    assert table.worker_lost(OW, LIFE).jobs == (seq,)
    assert not table.can_plan(OW, Lane.LOAD)


def test_planning_needs_an_attached_worker(table: JobTable) -> None:
    with pytest.raises(NotReadyError):
        table.plan(RT, JobKind.G4_PUT, Lane.STORE, 100)
    table.disconnected(OW)
    with pytest.raises(NotReadyError):
        plan(table)


def test_open_jobs_per_worker_are_bounded(table: JobTable) -> None:
    table.attached(RT, LIFE)
    for _ in range(6):
        load(table)

    assert not table.can_plan(OW, Lane.LOAD)
    with pytest.raises(JobWindowFullError):
        load(table)
    assert table.plan(RT, JobKind.G4_PUT, Lane.STORE, 100) == 7


def test_stores_leave_room_for_loads(table: JobTable) -> None:
    stores = [plan(table) for _ in range(4)]

    assert not table.can_plan(OW, Lane.STORE)
    with pytest.raises(JobWindowFullError):
        plan(table)
    assert table.can_plan(OW, Lane.LOAD)
    load(table)
    table.settle(stores[0], LIFE)
    assert table.can_plan(OW, Lane.STORE)


def test_one_stuck_job_bounds_the_numbers_that_follow(table: JobTable) -> None:
    plan(table)
    for _ in range(7):
        table.settle(plan(table), LIFE)

    with pytest.raises(JobWindowFullError):
        plan(table)


def test_inherited_jobs_end_by_their_result_or_by_their_absence() -> None:
    table = JobTable(Epoch(9), FakeClock())
    first, second, third = (JobId(Epoch(8), JobSeq(seq)) for seq in (1, 2, 3))
    table.attached(OW, LIFE, [first, second, third])

    assert table.settle_inherited(second, LIFE)
    assert not table.settle_inherited(second, LIFE)
    assert not table.settle_inherited(first, Epoch(LIFE + 1))
    assert table.attached(OW, LIFE, [third]).inherited == (first,)
    assert table.inherited(OW) == [third]
    assert table.attached(OW, Epoch(LIFE + 1)).inherited == (third,)


def test_unsettled_jobs_are_listed_per_worker(table: JobTable) -> None:
    table.attached(RT, LIFE)
    first = plan(table)
    other = table.plan(RT, JobKind.G4_GET, Lane.LOAD, 100)

    assert table.unsettled(OW) == [first]
    assert table.unsettled(RT) == [other]


def silent(table: JobTable) -> bool:
    """A call, so that mypy does not believe that an earlier answer still holds."""
    return table.silent(OW)


def test_a_worker_that_leaves_messages_unanswered_is_silent_until_it_says_anything(
    table: JobTable, clock: FakeClock
) -> None:
    seq = plan(table)
    clock.advance(5)
    assert not silent(table), "nothing was asked"
    table.sent(seq)
    clock.advance(0.9)
    table.sent(seq)
    assert not silent(table)
    clock.advance(0.1)
    assert silent(table), "it counts from the first message without an answer"
    assert state(table, seq) is JobState.SENT, "silence settles nothing"
    table.heard(OW)
    assert not silent(table)


def test_polls_and_cancels_without_an_answer_make_a_worker_silent_too(table: JobTable, clock: FakeClock) -> None:
    seq = plan(table, ttl_ms=100)
    table.sent(seq)
    table.heard(OW)
    table.accepted(seq)
    clock.advance(60)
    assert not silent(table), "a job that runs is no question"
    assert [action.verb for action in table.due(clock.monotonic())] == [JobVerb.CANCEL]
    clock.advance(1)
    assert silent(table)


def test_a_question_that_is_no_job_counts_too(table: JobTable, clock: FakeClock) -> None:
    table.asked(OW)
    clock.advance(1)
    assert silent(table)
    table.heard(OW)
    assert not silent(table)


def test_a_worker_that_is_away_is_not_silent_and_comes_back_heard(table: JobTable, clock: FakeClock) -> None:
    table.sent(plan(table))
    clock.advance(2)
    table.disconnected(OW)
    assert not silent(table)
    table.attached(OW, LIFE)
    assert not silent(table)


def test_last_hops_are_overdue_from_their_deadline_until_they_are_settled(table: JobTable, clock: FakeClock) -> None:
    seq, _ = load(table), plan(table)
    assert table.overdue(OW, LAST_HOPS) == []
    clock.advance(10.0)
    table.due(clock.monotonic())
    assert table.overdue(OW, LAST_HOPS) == [seq]
    assert table.overdue(RT, LAST_HOPS) == []
    assert table.settle(seq, LIFE)
    assert table.overdue(OW, LAST_HOPS) == []


def test_a_process_that_is_gone_settles_what_only_it_carried_out(table: JobTable) -> None:
    seq, other = load(table), plan(table)
    table.disconnected(OW)
    assert table.process_lost(OW, Epoch(LIFE - 1), LAST_HOPS).jobs == ()
    assert table.process_lost(OW, LIFE, LAST_HOPS).jobs == (seq,)
    assert table.process_lost(OW, LIFE, LAST_HOPS).jobs == ()
    assert not table.settle(seq, LIFE)
    assert table.unsettled(OW) == [other]
