"""The lease on a node's name: what is written over what, and when the node may speak."""

import pytest

from blockyard.core.name_lease import LeaseState, LeaseStep, NameHolder, NameLease, WriteRecord
from blockyard.core.vocabulary import Epoch
from blockyard.testing.clock import FakeClock

TTL = 10.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def lease(clock: FakeClock) -> NameLease:
    return NameLease("mine", Epoch(5), clock, ttl_seconds=TTL)


def hold(lease: NameLease, revision: int = 7) -> None:
    write = lease.found(None, revision - 1)
    assert isinstance(write, WriteRecord)
    lease.written(write, revision)


def test_it_looks_before_it_writes(lease: NameLease) -> None:
    assert lease.next_step() is LeaseStep.READ
    write = lease.found(None, 3)
    assert isinstance(write, WriteRecord)
    assert write.over == 3
    assert not lease.may_speak


def test_what_is_held_is_renewed_over_its_own_revision(lease: NameLease) -> None:
    hold(lease, 7)
    step = lease.next_step()
    assert isinstance(step, WriteRecord)
    assert (lease.state, step.over) == (LeaseState.HELD, 7)


@pytest.mark.parametrize("epoch", [4, 5])
def test_a_record_of_this_folder_that_is_not_later_is_replaced(lease: NameLease, epoch: int) -> None:
    write = lease.found(NameHolder("mine", Epoch(epoch)), 3)
    assert isinstance(write, WriteRecord)
    assert write.over == 3


def test_a_live_record_of_another_folder_is_left_alone_until_it_is_gone(lease: NameLease) -> None:
    for holder in (NameHolder("other", Epoch(1)), NameHolder(None, Epoch(0))):
        assert lease.found(holder, 3) is LeaseStep.WAIT
        assert (lease.state, lease.next_step()) == (LeaseState.TAKEN, LeaseStep.READ)
    assert isinstance(lease.found(None, 4), WriteRecord)


def test_a_later_life_of_this_folder_fences_for_good(lease: NameLease) -> None:
    hold(lease)
    assert lease.refused() is LeaseStep.READ
    assert lease.found(NameHolder("mine", Epoch(6)), 9) is LeaseStep.WAIT
    lease.away()
    assert (lease.state, lease.next_step(), lease.may_speak) == (LeaseState.FENCED, LeaseStep.WAIT, False)


def test_it_is_silent_from_the_refusal_of_a_renewal_until_it_knows_why(lease: NameLease) -> None:
    hold(lease)
    assert lease.may_speak
    lease.refused()
    assert not lease.may_speak, "a server that lost its data may have given the name to somebody else"
    write = lease.found(None, 0)
    assert isinstance(write, WriteRecord)
    lease.written(write, 1)
    assert lease.may_speak


def test_it_speaks_until_the_server_may_have_dropped_the_record(lease: NameLease, clock: FakeClock) -> None:
    write = lease.found(None, 0)
    assert isinstance(write, WriteRecord)
    clock.advance(4.0)  # the answer takes its time
    lease.written(write, 1)
    clock.advance(TTL - 4.0 - 0.001)
    assert lease.may_speak
    clock.advance(0.001)
    assert (lease.state, lease.may_speak) == (LeaseState.HELD, False)


def test_an_answer_that_is_read_after_a_long_sleep_lets_nothing_out(lease: NameLease, clock: FakeClock) -> None:
    write = lease.found(None, 0)
    assert isinstance(write, WriteRecord)
    clock.advance(3 * TTL)
    lease.written(write, 1)
    assert not lease.may_speak


def test_after_a_long_sleep_it_looks_before_it_writes(lease: NameLease, clock: FakeClock) -> None:
    hold(lease)
    clock.advance(TTL)
    assert lease.next_step() is LeaseStep.READ


def test_a_step_of_the_wall_clock_changes_nothing(lease: NameLease, clock: FakeClock) -> None:
    hold(lease)
    for milliseconds in (3_600_000, -7_200_000):
        clock.step_wall(milliseconds)
        assert lease.may_speak


def test_a_server_that_was_away_is_read_before_it_is_written(lease: NameLease) -> None:
    """It may have come back without its data, and have given the same revision to somebody else's record."""
    hold(lease, 7)
    lease.away()
    assert (lease.state, lease.may_speak, lease.next_step()) == (LeaseState.AWAY, False, LeaseStep.READ)


def test_a_name_that_was_given_up_is_not_spoken_for(lease: NameLease) -> None:
    hold(lease)
    lease.given_up()
    assert (lease.state, lease.may_speak, lease.revision) == (LeaseState.PENDING, False, None)
