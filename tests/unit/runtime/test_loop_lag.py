"""Lag of the event loop."""

import asyncio

import pytest

from blockyard.runtime.loop_lag import PERIOD_SECONDS, measure_loop_lag
from blockyard.runtime.telemetry import Metrics
from blockyard.testing.clock import FakeClock


class Loop:
    """A loop whose timers come late by what ``late`` says, and which is gone after the last."""

    def __init__(self, *late: float) -> None:
        self.clock, self.metrics = FakeClock(), Metrics("test")
        self._late = list(late)

    async def _sleep(self, seconds: float) -> None:
        if not self._late:
            raise asyncio.CancelledError
        self.clock.advance(seconds + self._late.pop(0))

    async def run(self) -> None:
        with pytest.raises(asyncio.CancelledError):
            await measure_loop_lag(self.metrics.event_loop_lag_seconds, self.clock, self._sleep)

    def value(self, ending: str, **labels: str) -> float:
        found = self.metrics.registry.get_sample_value(f"blockyard_event_loop_lag_seconds_{ending}", labels)
        assert found is not None
        return found


async def test_what_a_timer_is_late_is_the_lag_of_the_loop() -> None:
    loop = Loop(0.125, 0.0)
    await loop.run()
    assert loop.value("count") == 2
    assert loop.value("sum") == pytest.approx(0.125)
    assert loop.value("bucket", le="0.001") == 1
    assert PERIOD_SECONDS < 1


async def test_every_timer_that_a_stall_delays_counts() -> None:
    # Due at 0.25; the loop comes at 2.25: eight more were due meanwhile, the last of them just then.
    loop = Loop(2.0, 0.0)
    await loop.run()
    assert loop.value("count") == 1 + 8 + 1
    assert loop.value("sum") == pytest.approx(2.0 + 1.75 + 1.5 + 1.25 + 1.0 + 0.75 + 0.5 + 0.25)
    assert loop.value("bucket", le="0.001") == 2, "and then it is in step again"
