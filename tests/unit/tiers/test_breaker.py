"""The breaker refuses calls to a dead server, and lets one through now and then."""

import pytest

from blockyard.core.errors import (
    AccessDeniedError,
    BlockyardError,
    DeadlineExceededError,
    ObjectNotFoundError,
    UnavailableError,
)
from blockyard.testing.clock import FakeClock
from blockyard.tiers.breaker import Breaker, BreakerState


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def breaker(clock: FakeClock) -> Breaker:
    return Breaker("server", clock)


def fail(breaker: Breaker, error: BlockyardError | None = None) -> None:
    with pytest.raises(BlockyardError), breaker.attempt():
        raise error or UnavailableError("gone")


def state_of(breaker: Breaker) -> BreakerState:
    """A call, so that mypy does not believe that an earlier answer still holds."""
    return breaker.state


def open_it(breaker: Breaker) -> None:
    for _ in range(3):
        fail(breaker)


def test_opens_after_failures_in_a_row(breaker: Breaker) -> None:
    fail(breaker)
    fail(breaker)
    assert state_of(breaker) is BreakerState.CLOSED
    fail(breaker)
    assert state_of(breaker) is BreakerState.OPEN


def test_an_answer_in_between_starts_the_count_again(breaker: Breaker) -> None:
    fail(breaker)
    fail(breaker)
    with breaker.attempt():
        pass
    fail(breaker)
    assert state_of(breaker) is BreakerState.CLOSED


@pytest.mark.parametrize("answer", [ObjectNotFoundError("no"), AccessDeniedError("no")])
def test_a_refusing_answer_is_an_answer(breaker: Breaker, answer: BlockyardError) -> None:
    for _ in range(5):
        fail(breaker, answer)
    assert state_of(breaker) is BreakerState.CLOSED


def test_refuses_at_once_while_open(breaker: Breaker) -> None:
    open_it(breaker)
    entered = False
    with pytest.raises(UnavailableError, match="not asked"), breaker.attempt():
        entered = True
    assert not entered


def test_one_call_passes_after_the_pause(breaker: Breaker, clock: FakeClock) -> None:
    open_it(breaker)
    clock.advance(0.6)
    assert state_of(breaker) is BreakerState.HALF_OPEN
    with breaker.attempt(), pytest.raises(UnavailableError), breaker.attempt():
        pass
    assert state_of(breaker) is BreakerState.CLOSED


def test_pauses_grow_while_it_stays_dead(breaker: Breaker, clock: FakeClock) -> None:
    open_it(breaker)
    pauses = []
    for _ in range(6):
        waited = 0.0
        while state_of(breaker) is BreakerState.OPEN:
            clock.advance(0.25)
            waited += 0.25
        pauses.append(waited)
        fail(breaker)
    assert pauses == [0.5, 0.5, 1.0, 2.0, 4.0, 5.0]


def test_a_cancelled_probe_frees_its_place(breaker: Breaker, clock: FakeClock) -> None:
    open_it(breaker)
    clock.advance(1)
    with pytest.raises(KeyboardInterrupt), breaker.attempt():
        raise KeyboardInterrupt
    assert state_of(breaker) is BreakerState.HALF_OPEN
    with breaker.attempt():
        pass
    assert state_of(breaker) is BreakerState.CLOSED


@pytest.mark.parametrize(("seconds", "state"), [(0.5, BreakerState.CLOSED), (1.5, BreakerState.OPEN)])
def test_calls_given_up_after_long_waits_are_failures(
    breaker: Breaker, clock: FakeClock, seconds: float, state: BreakerState
) -> None:
    def give_up() -> None:
        with breaker.attempt():
            clock.advance(seconds)
            raise TimeoutError

    with pytest.raises(TimeoutError):
        give_up()
    assert state_of(breaker) is state


def test_silence_opens_at_once(breaker: Breaker) -> None:
    fail(breaker, DeadlineExceededError("no answer"))
    assert state_of(breaker) is BreakerState.OPEN


def test_a_slow_call_beside_others_that_are_answered_is_no_silence(breaker: Breaker) -> None:
    def call() -> None:
        with breaker.attempt():
            with breaker.attempt():
                pass
            raise DeadlineExceededError("no answer")

    with pytest.raises(DeadlineExceededError):
        call()
    assert state_of(breaker) is BreakerState.CLOSED


def test_calls_under_way_when_it_opens_do_not_make_the_pause_longer(breaker: Breaker, clock: FakeClock) -> None:
    calls = [breaker.attempt() for _ in range(8)]
    for call in calls:
        call.__enter__()
    for call in calls:
        error = DeadlineExceededError("no answer")
        assert not call.__exit__(type(error), error, None)
    clock.advance(0.6)
    assert state_of(breaker) is BreakerState.HALF_OPEN
