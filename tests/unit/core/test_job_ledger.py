"""Jobs of a worker: fencing, known ids, results, permission to issue."""

import pytest

from blockyard.core.errors import AttachedElsewhereError, FencedError, KernelError, NotAttachedError, RequestError
from blockyard.core.job_ledger import Admission, AttachKind, JobLedger, JobTicket
from blockyard.core.jobs import SEQ_WINDOW, JobId, JobPhase, Refusal
from blockyard.core.vocabulary import Epoch, Generation, ItemStatus, JobEnd, JobKind, JobSeq, Lane
from blockyard.testing.clock import FakeClock

WORKER = Epoch(50)
LIFE = Epoch(9)
OK = bytes([ItemStatus.OK])


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ledger(clock: FakeClock) -> JobLedger[str]:
    made: JobLedger[str] = JobLedger(WORKER, clock, limit=4)
    made.attach("node", LIFE, incumbent_connected=False)
    return made


def ticket(
    seq: int,
    *,
    epoch: Epoch = LIFE,
    worker: Epoch = WORKER,
    kind: JobKind = JobKind.G3_G2,
    lane: Lane = Lane.STORE,
    items: int = 1,
    ttl_ms: int = 1_000,
) -> JobTicket[str]:
    job = JobId(epoch, JobSeq(seq))
    return JobTicket(
        job=job, worker_epoch=worker, kind=kind, lane=lane, ttl_ms=ttl_ms, items=items, payload=f"job {seq}"
    )


def run(
    ledger: JobLedger[str], seq: int, *, kind: JobKind = JobKind.G3_G2, items: int = 1, ttl_ms: int = 1_000
) -> JobId:
    one = ticket(seq, kind=kind, items=items, ttl_ms=ttl_ms)
    assert ledger.submit(one, 1) is Admission.QUEUED
    started = ledger.start()
    assert started is one
    return one.job


# --- attach -------------------------------------------------------------------------------------------------------
def test_nothing_is_taken_before_an_attach(clock: FakeClock) -> None:
    ledger: JobLedger[str] = JobLedger(WORKER, clock)

    with pytest.raises(NotAttachedError):
        ledger.submit(ticket(1), 1)
    with pytest.raises(NotAttachedError):
        ledger.poll(LIFE, [1])


def test_lower_epoch_is_fenced_and_equal_one_is_a_reconnect(ledger: JobLedger[str]) -> None:
    with pytest.raises(FencedError):
        ledger.attach("node", Epoch(LIFE - 1), incumbent_connected=False)
    assert ledger.attach("node", LIFE, incumbent_connected=True) is AttachKind.RECONNECT


def test_other_instance_is_refused_while_the_served_one_is_connected(ledger: JobLedger[str]) -> None:
    with pytest.raises(AttachedElsewhereError):
        ledger.attach("other", Epoch(LIFE + 1), incumbent_connected=True)
    with pytest.raises(FencedError):
        ledger.attach("other", LIFE, incumbent_connected=False)
    assert ledger.attach("other", Epoch(LIFE + 1), incumbent_connected=False) is AttachKind.TAKEOVER


def test_takeover_drops_what_is_queued_and_names_what_runs(ledger: JobLedger[str]) -> None:
    running = run(ledger, 1)
    ledger.submit(ticket(2), 1)
    newer = Epoch(LIFE + 1)

    ledger.attach("node", newer, incumbent_connected=True)
    assert ledger.running(below=newer) == [running]
    assert ledger.start() is None
    assert [each.job for each in ledger.live()] == [running]
    assert ledger.submit(ticket(3), 1) is Refusal.STALE_EPOCH


def test_takeover_stops_running_jobs_before_their_next_item(ledger: JobLedger[str], clock: FakeClock) -> None:
    job = run(ledger, 1)
    assert ledger.may_issue(job, Generation(2), Generation(1), clock.monotonic()) is ItemStatus.OK

    ledger.attach("node", Epoch(LIFE + 1), incumbent_connected=True)
    assert ledger.cancelled(job)
    assert ledger.may_issue(job, Generation(2), Generation(1), clock.monotonic()) is ItemStatus.SKIPPED


def test_inherited_result_goes_to_the_new_life_until_it_is_acked(ledger: JobLedger[str], clock: FakeClock) -> None:
    job = run(ledger, 1)
    newer = Epoch(LIFE + 1)
    ledger.attach("node", newer, incumbent_connected=True)
    ledger.drop_ended(newer)

    ledger.finish(job, OK)
    assert [each.job for each in ledger.results_due(clock.monotonic())] == [job]
    ledger.ack(LIFE, [1], 1)
    assert ledger.results_due(clock.monotonic(), everything=True) == []
    assert ledger.remembered == 0


def test_results_that_nobody_waits_for_are_dropped_at_takeover(ledger: JobLedger[str], clock: FakeClock) -> None:
    ended, ending = run(ledger, 1), run(ledger, 2)
    ledger.finish(ended, OK)
    newer = Epoch(LIFE + 1)
    ledger.attach("node", newer, incumbent_connected=True)
    ledger.finish(ending, OK)

    ledger.drop_ended(newer)
    assert ledger.results_due(clock.monotonic(), everything=True) == []


# --- submit -------------------------------------------------------------------------------------------------------
def test_repeated_submit_is_known_in_every_phase(ledger: JobLedger[str]) -> None:
    ledger.submit(ticket(1), 1)
    assert ledger.submit(ticket(1), 1) is Admission.KNOWN
    ledger.start()
    assert ledger.submit(ticket(1), 1) is Admission.KNOWN
    ledger.finish(JobId(LIFE, JobSeq(1)), OK)
    assert ledger.submit(ticket(1), 1) is Admission.KNOWN
    ledger.ack(LIFE, [1], 1)
    assert ledger.submit(ticket(1), 1) is Refusal.SETTLED
    assert ledger.start() is None


def test_ids_below_the_settled_mark_are_refused(ledger: JobLedger[str]) -> None:
    assert ledger.submit(ticket(5), 5) is Admission.QUEUED
    assert ledger.submit(ticket(4), 1) is Refusal.SETTLED
    assert ledger.poll(LIFE, [4]) == [(JobId(LIFE, JobSeq(4)), JobPhase.ENDED)]


def test_job_for_another_life_of_the_worker_is_refused(ledger: JobLedger[str]) -> None:
    assert ledger.submit(ticket(1, worker=Epoch(WORKER - 1)), 1) is Refusal.STALE_WORKER


def test_refusal_sticks_for_later_copies(ledger: JobLedger[str]) -> None:
    assert ledger.submit(ticket(1), 1, refusal=Refusal.NO_MAPPING) is Refusal.NO_MAPPING
    assert ledger.submit(ticket(1), 1) is Refusal.TOMBSTONE


def test_full_ledger_is_busy_and_remembers_nothing(ledger: JobLedger[str]) -> None:
    for seq in range(1, 5):
        ledger.submit(ticket(seq), 1)

    assert ledger.submit(ticket(5), 1) is Admission.BUSY
    assert ledger.poll(LIFE, [1])[0][1] is JobPhase.QUEUED
    assert ledger.remembered == 4


def test_unacknowledged_results_count_against_the_limit(ledger: JobLedger[str]) -> None:
    for seq in range(1, 5):
        ledger.finish(run(ledger, seq), OK)

    assert ledger.submit(ticket(5), 1) is Admission.BUSY
    ledger.ack(LIFE, [1, 2], 3)
    assert ledger.submit(ticket(5), 3) is Admission.QUEUED


def test_numbers_outside_the_window_are_refused(ledger: JobLedger[str]) -> None:
    assert ledger.submit(ticket(SEQ_WINDOW + 1), 1) is Refusal.BAD_REQUEST
    with pytest.raises(RequestError):
        ledger.poll(LIFE, [SEQ_WINDOW + 1])
    assert ledger.remembered == 0


def test_loads_start_before_stores(ledger: JobLedger[str]) -> None:
    ledger.submit(ticket(1, lane=Lane.STORE), 1)
    ledger.submit(ticket(2, lane=Lane.LOAD), 1)
    started = [ledger.start(), ledger.start()]

    assert [each.payload for each in started if each is not None] == ["job 2", "job 1"]


# --- cancel and poll ----------------------------------------------------------------------------------------------
def test_cancelled_queued_job_ends_untouched(ledger: JobLedger[str], clock: FakeClock) -> None:
    ledger.submit(ticket(1, items=3), 1)

    assert ledger.cancel(LIFE, [1]) == [(JobId(LIFE, JobSeq(1)), JobPhase.ENDED)]
    assert ledger.start() is None
    (outcome,) = ledger.results_due(clock.monotonic())
    assert outcome.end is JobEnd.CANCELLED
    assert outcome.status == bytes([ItemStatus.SKIPPED]) * 3


def test_cancelled_running_job_issues_nothing_more_and_reports_at_its_end(
    ledger: JobLedger[str], clock: FakeClock
) -> None:
    job = run(ledger, 1)

    assert ledger.cancel(LIFE, [1]) == [(job, JobPhase.RUNNING)]
    assert ledger.may_issue(job, Generation(2), Generation(1), clock.monotonic()) is ItemStatus.SKIPPED
    assert ledger.results_due(clock.monotonic()) == []
    assert ledger.finish(job, OK).end is JobEnd.CANCELLED


@pytest.mark.parametrize("verb", ["cancel", "poll"])
def test_unseen_job_is_tombstoned_by_the_question(ledger: JobLedger[str], verb: str) -> None:
    for _ in range(2):
        assert getattr(ledger, verb)(LIFE, [3]) == [(JobId(LIFE, JobSeq(3)), JobPhase.UNSEEN)]
    assert ledger.submit(ticket(3), 1) is Refusal.TOMBSTONE
    assert ledger.start() is None


def test_settled_mark_forgets_results_and_tombstones(ledger: JobLedger[str], clock: FakeClock) -> None:
    ledger.poll(LIFE, [2, 3])
    ledger.finish(run(ledger, 1), OK)
    ledger.ack(LIFE, [], 4)

    assert ledger.remembered == 0
    assert ledger.results_due(clock.monotonic(), everything=True) == []


# --- permission ---------------------------------------------------------------------------------------------------
def test_only_a_higher_generation_than_the_header_is_written(ledger: JobLedger[str], clock: FakeClock) -> None:
    job = run(ledger, 1)
    answers = [ledger.may_issue(job, Generation(5), Generation(header), clock.monotonic()) for header in (4, 5, 6)]

    assert answers == [ItemStatus.OK, ItemStatus.SKIPPED, ItemStatus.SKIPPED]


def test_freeing_needs_the_very_generation_of_the_header(ledger: JobLedger[str], clock: FakeClock) -> None:
    job = run(ledger, 1, kind=JobKind.FREE)
    answers = [ledger.may_issue(job, Generation(5), Generation(header), clock.monotonic()) for header in (4, 5, 6)]

    assert answers == [ItemStatus.SKIPPED, ItemStatus.OK, ItemStatus.SKIPPED]


def test_destinations_without_headers_need_no_generation(ledger: JobLedger[str], clock: FakeClock) -> None:
    job = run(ledger, 1, kind=JobKind.G2_G1)

    assert ledger.may_issue(job, None, None, clock.monotonic()) is ItemStatus.OK


def test_missing_generation_is_a_bug_of_the_caller(ledger: JobLedger[str], clock: FakeClock) -> None:
    job = run(ledger, 1)

    with pytest.raises(KernelError):
        ledger.may_issue(job, Generation(1), None, clock.monotonic())


def test_time_over_skips_the_item_and_ends_the_job_as_expired(ledger: JobLedger[str], clock: FakeClock) -> None:
    job = run(ledger, 1, ttl_ms=500)
    clock.advance(0.5)

    assert ledger.may_issue(job, Generation(2), Generation(1), clock.monotonic()) is ItemStatus.SKIPPED
    assert ledger.finish(job, bytes([ItemStatus.SKIPPED])).end is JobEnd.EXPIRED


def test_ended_job_issues_nothing(ledger: JobLedger[str], clock: FakeClock) -> None:
    job = run(ledger, 1)
    ledger.finish(job, OK)

    ledger.ack(LIFE, [1], 1)
    assert ledger.may_issue(job, Generation(2), Generation(1), clock.monotonic()) is ItemStatus.SKIPPED


def test_the_time_of_a_job_counts_from_its_receipt(ledger: JobLedger[str], clock: FakeClock) -> None:
    ledger.submit(ticket(1, ttl_ms=1_000), 1)
    clock.advance(0.4)
    started = ledger.start()
    assert started is not None
    assert ledger.remaining_seconds(started.job, clock.monotonic()) == pytest.approx(0.6)
    clock.advance(1)
    assert ledger.remaining_seconds(started.job, clock.monotonic()) < 0
    assert ledger.remaining_seconds(JobId(LIFE, JobSeq(9)), clock.monotonic()) == 0


# --- results ------------------------------------------------------------------------------------------------------
def test_results_are_repeated_until_acknowledged(ledger: JobLedger[str], clock: FakeClock) -> None:
    job = run(ledger, 1)
    ledger.finish(job, OK, index_pending=True)

    assert [each.index_pending for each in ledger.results_due(clock.monotonic())] == [True]
    assert ledger.results_due(clock.monotonic()) == []
    clock.advance(1.0)
    assert len(ledger.results_due(clock.monotonic())) == 1
    assert len(ledger.results_due(clock.monotonic(), everything=True)) == 1
    ledger.ack(LIFE, [1], 2)
    clock.advance(1.0)
    assert ledger.results_due(clock.monotonic()) == []


def test_job_ends_once_and_with_one_status_per_item(ledger: JobLedger[str]) -> None:
    job = run(ledger, 1, items=2)

    with pytest.raises(KernelError):
        ledger.finish(job, OK)
    ledger.finish(job, OK * 2)
    with pytest.raises(KernelError):
        ledger.finish(job, OK * 2)


@pytest.mark.parametrize("started", [True, False], ids=["running", "queued"])
def test_job_that_is_settled_elsewhere_ends_quietly(ledger: JobLedger[str], started: bool) -> None:
    one = ticket(1)
    ledger.submit(one, 1)
    if started:
        assert ledger.start() is one
    assert ledger.submit(ticket(2), settled_below=2) is Admission.QUEUED

    following = ledger.start()
    assert following is not None
    assert following.job.seq == 2
    if started:
        assert ledger.finish(one.job, OK).status == OK
