"""The clock of the test kit."""

import pytest

from blockyard.core.clock import Clock, SystemClock
from blockyard.core.errors import KernelError
from blockyard.testing.clock import FakeClock


def test_time_passes_only_when_told() -> None:
    clock = FakeClock(monotonic=10.0, wall_ms=5_000)
    assert (clock.monotonic(), clock.wall_ms()) == (10.0, 5_000)
    clock.advance(1.5)
    assert (clock.monotonic(), clock.wall_ms()) == (11.5, 6_500)


def test_the_wall_clock_steps_alone() -> None:
    clock = FakeClock()
    before = clock.monotonic()
    clock.step_wall(-3_600_000)
    assert clock.monotonic() == before


def test_monotonic_time_does_not_go_back() -> None:
    with pytest.raises(KernelError):
        FakeClock().advance(-0.1)


@pytest.mark.parametrize("clock", [FakeClock(), SystemClock()], ids=["fake", "system"])
def test_every_clock_is_a_clock(clock: Clock) -> None:
    assert clock.monotonic() <= clock.monotonic()
    assert clock.wall_ms() > 0
