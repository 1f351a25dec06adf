"""Lag of the event loop."""

import asyncio

import pytest

from blockyard.runtime.loop_lag import PERIOD_SECONDS, measure_loop_lag
from blockyard.runtime.telemetry import Metrics
from blockyard.testing.clock import FakeClock


async def test_what_a_timer_is_late_is_the_lag_of_the_loop() -> None:
    clock, metrics, late = FakeClock(), Metrics("test"), [0.0, 0.5]

    async def sleep(seconds: float) -> None:
        if not late:
            raise asyncio.CancelledError
        clock.advance(seconds + late.pop())

    with pytest.raises(asyncio.CancelledError):
        await measure_loop_lag(metrics.event_loop_lag_seconds, clock, sleep)
    value = metrics.registry.get_sample_value
    assert value("blockyard_event_loop_lag_seconds_count") == 2
    assert value("blockyard_event_loop_lag_seconds_sum") == pytest.approx(0.5)
    assert value("blockyard_event_loop_lag_seconds_bucket", {"le": "0.001"}) == 1
    assert PERIOD_SECONDS < 1
