"""When patience with the last hops of loads ends."""

from collections.abc import Collection

import pytest

from blockyard.core.jobs import JobId
from blockyard.core.overdue_jobs import GAP_SECONDS, HEARING_SECONDS, OverdueJobs
from blockyard.core.vocabulary import Epoch, JobSeq
from blockyard.testing.clock import FakeClock

TICK_SECONDS = 0.5
PATIENCE_SECONDS = 10.0
TICKS = int(PATIENCE_SECONDS / TICK_SECONDS)


def job(seq: int, epoch: int = 9) -> JobId:
    return JobId(Epoch(epoch), JobSeq(seq))


class Looks:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.overdue = OverdueJobs(self.clock, patience_seconds=PATIENCE_SECONDS)
        self.channel: object | None = object()

    def look(self, overdue: Collection[JobId], after_seconds: float = TICK_SECONDS) -> tuple[JobId, ...]:
        self.clock.advance(after_seconds)
        return self.overdue.look(overdue, self.channel)

    def look_often(self, times: int, overdue: Collection[JobId]) -> None:
        for _ in range(times):
            assert self.look(overdue) == ()


@pytest.fixture
def looks() -> Looks:
    return Looks()


def test_a_job_is_stuck_when_it_was_overdue_for_the_whole_patience(looks: Looks) -> None:
    looks.look_often(TICKS, [job(1)])
    assert looks.look([job(1)]) == (job(1),)
    assert looks.look([job(1)]) == (job(1),), "until it is settled"


def test_each_job_has_its_own_patience(looks: Looks) -> None:
    looks.look_often(1, [job(2)])
    looks.look_often(TICKS - 1, [job(1), job(2)])
    assert looks.look([job(1), job(2)]) == (job(2),)
    assert looks.look([job(1), job(2)]) == (job(1), job(2))


def test_a_settled_job_is_forgotten(looks: Looks) -> None:
    looks.look_often(TICKS, [job(1)])
    assert looks.look([]) == ()
    looks.look_often(TICKS, [job(1)])
    assert looks.look([job(1)]) == (job(1),)


def test_jobs_of_earlier_lives_are_told_from_ours(looks: Looks) -> None:
    looks.look_often(TICKS, [job(1, epoch=8)])
    assert looks.look([job(1)]) == ()


def test_time_in_which_nobody_looked_does_not_count(looks: Looks) -> None:
    """We stood still ourselves, and the answers are in the socket."""
    looks.look_often(TICKS, [job(1)])
    assert looks.look([job(1)], after_seconds=100.0) == ()
    looks.look_often(TICKS - 1, [job(1)])
    assert looks.look([job(1)]) == (job(1),)


def test_a_late_look_is_none_missed(looks: Looks) -> None:
    late_seconds = GAP_SECONDS - 0.25
    looks.look_often(TICKS, [job(1)])
    assert looks.look([job(1)], after_seconds=late_seconds) == (job(1),)


def test_without_a_channel_nothing_is_stuck_and_a_new_one_is_heard_first(looks: Looks) -> None:
    looks.channel = None
    looks.look_often(2 * TICKS, [job(1)])
    looks.channel = object()
    looks.look_often(round(HEARING_SECONDS / TICK_SECONDS), [job(1)])
    assert looks.look([job(1)]) == (job(1),)
    looks.channel = object()
    assert looks.look([job(1)]) == ()
