"""What the metrics say about calls to the servers."""

import asyncio

import pytest
from tests.unit.remote_tier.conftest import Node

from blockyard.core.errors import (
    AccessDeniedError,
    BlockyardError,
    DeadlineExceededError,
    ObjectNotFoundError,
    UnavailableError,
)
from blockyard.runtime.telemetry import Metrics, Operation, Server
from blockyard.testing.blocks import chain
from blockyard.testing.clock import FakeClock
from blockyard.tiers.breaker import Breaker
from blockyard_remote_tier.server_meter import GIVEN_UP, ServerMeter

RUN = chain("prompt", 8)


def sample(metrics: Metrics, metric: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"blockyard_{metric}", labels) or 0.0


def test_a_call_is_timed() -> None:
    clock, metrics = FakeClock(), Metrics("test")
    with ServerMeter(Server.S3, metrics, clock).call(Operation.GET):
        clock.advance(0.25)
    assert sample(metrics, "dependency_seconds_sum", name="s3", operation="get") == 0.25
    assert sample(metrics, "dependency_seconds_count", name="s3", operation="get") == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnavailableError("gone"), "unavailable"),
        (AccessDeniedError("no"), "access-denied"),
        (DeadlineExceededError("late"), "deadline-exceeded"),
    ],
)
def test_a_failed_call_is_counted_with_its_reason_and_in_the_denominator(error: BlockyardError, reason: str) -> None:
    metrics = Metrics("test")
    with pytest.raises(type(error)), ServerMeter(Server.REDIS, metrics, FakeClock()).call(Operation.FIND):
        raise error
    assert sample(metrics, "dependency_errors_total", name="redis", reason=reason) == 1
    assert sample(metrics, "dependency_seconds_count", name="redis", operation="find") == 1


def test_an_absent_object_is_an_answer() -> None:
    metrics = Metrics("test")
    with pytest.raises(ObjectNotFoundError), ServerMeter(Server.S3, metrics, FakeClock()).call(Operation.GET):
        raise ObjectNotFoundError("not there")
    lines = metrics.exposition()[0].decode().splitlines()
    assert {line.split()[-1] for line in lines if line.startswith("blockyard_dependency_errors_total{")} == {"0.0"}


async def test_a_call_that_its_caller_gave_up_is_counted() -> None:
    metrics = Metrics("test")
    meter = ServerMeter(Server.S3, metrics, FakeClock())

    async def hang() -> None:
        with meter.call(Operation.PUT):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(hang(), 0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await hang()
    assert sample(metrics, "dependency_errors_total", name="s3", reason=GIVEN_UP) == 1


def test_what_an_open_breaker_refuses_was_no_call() -> None:
    clock, metrics = FakeClock(), Metrics("test")
    breaker, meter = Breaker(Server.S3, clock), ServerMeter(Server.S3, metrics, clock)
    for _ in range(5):
        with pytest.raises(UnavailableError), breaker.attempt(), meter.call(Operation.GET):
            raise UnavailableError("gone")
    assert sample(metrics, "dependency_seconds_count", name="s3", operation="get") == 3


async def test_puts_reads_and_lookups_show_under_their_operations(node: Node) -> None:
    await node.bench.put(RUN)
    assert (await node.bench.load(RUN, first_slot=10)).all_ok
    for name, operation in (("s3", "put"), ("s3", "get"), ("redis", "set"), ("redis", "find"), ("redis", "meta")):
        assert sample(node.metrics, "dependency_seconds_count", name=name, operation=operation) >= 1, operation


async def test_index_writes_that_wait_are_shown_until_they_are_made(node: Node) -> None:
    node.index.down = True
    await node.bench.put(RUN)
    await node.tier.upkeep.round()
    assert sample(node.metrics, "index_writes_waiting") > 0
    node.index.down = False
    node.clock.advance(10)
    await node.tier.upkeep.round()
    assert sample(node.metrics, "index_writes_waiting") == 0
