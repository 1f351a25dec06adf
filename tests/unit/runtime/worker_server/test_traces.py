"""A job that runs has a span, caused by the job at the block-manager, whatever becomes of it."""

import msgspec
import pytest

from blockyard.core.errors import StorageError, UnavailableError
from blockyard.core.vocabulary import JobKind, Tier
from blockyard.runtime.span_names import SpanName
from blockyard.runtime.spans import SpanKind
from blockyard.testing.clock import FakeClock
from blockyard.testing.recording_tracer import RecordingTracer
from blockyard.testing.scripted_worker import MANAGER_EPOCH, ManagerLink, ScriptedExecutor, slot_job, until_news
from blockyard.wire.trace_parent import NO_TRACE, new_trace


async def test_a_transfer_belongs_to_the_trace_of_its_job(
    manager: ManagerLink, executor: ScriptedExecutor, tracer: RecordingTracer
) -> None:
    trace = new_trace()
    await manager.submit(slot_job(1, slots=(0, 1)), trace=trace)
    await manager.result()
    span = tracer.only(SpanName.TRANSFER)
    assert (span.parent, span.kind, span.error) == (trace, SpanKind.SERVER, "")
    assert span.attributes == {
        "blockyard.job.kind": "g3_g2",
        "blockyard.edge": "g3_g2",
        "blockyard.items": 2,
        "blockyard.bytes": 2 * 4_096,
        "blockyard.status.ok": 2,
        "blockyard.wait_seconds": 0.0,
    }
    assert executor.traces == {1: span.traceparent}


async def test_the_wait_for_a_turn_is_told(
    manager: ManagerLink, executor: ScriptedExecutor, tracer: RecordingTracer, clock: FakeClock
) -> None:
    executor.gate.clear()
    for seq in (1, 2):
        await manager.submit(slot_job(seq, slots=(seq,)), trace=new_trace())
    clock.advance(0.5)
    executor.gate.set()
    await manager.result(2)
    waits = sorted(span.attributes["blockyard.wait_seconds"] for span in tracer.of(SpanName.TRANSFER))
    assert waits == [0.0, pytest.approx(0.5)]


async def test_a_job_that_had_to_wait_runs_for_its_own_trace(
    manager: ManagerLink, executor: ScriptedExecutor, tracer: RecordingTracer
) -> None:
    """It is started by the end of another one, in whose context it must not stay."""
    executor.gate.clear()
    traces = {1: new_trace(), 2: NO_TRACE, 3: new_trace(sampled=False)}
    for seq, trace in traces.items():
        await manager.submit(slot_job(seq, slots=(seq,)), trace=trace)
    executor.gate.set()
    await manager.result(3)
    first, second = tracer.of(SpanName.TRANSFER)
    assert (first.parent, second.parent) == (traces[1], NO_TRACE)
    assert executor.traces == {1: first.traceparent, 2: second.traceparent, 3: traces[3]}


async def test_a_repeated_submit_makes_no_second_span(
    manager: ManagerLink, executor: ScriptedExecutor, tracer: RecordingTracer
) -> None:
    executor.gate.clear()
    trace = new_trace()
    for _ in range(3):
        await manager.submit(slot_job(1), trace=trace)
    executor.gate.set()
    await manager.result()
    assert tracer.only(SpanName.TRANSFER).parent == trace


@pytest.mark.parametrize(
    ("failure", "status"), [(UnavailableError("away"), "unknown"), (StorageError("broken"), "io_error")]
)
async def test_a_job_that_fails_as_a_whole_says_so_per_item(
    manager: ManagerLink, executor: ScriptedExecutor, tracer: RecordingTracer, failure: Exception, status: str
) -> None:
    executor.failure = failure
    await manager.submit(slot_job(1), trace=new_trace())
    await manager.result()
    assert tracer.only(SpanName.TRANSFER).attributes[f"blockyard.status.{status}"] == 1


async def test_a_job_that_frees_slots_moves_nothing(manager: ManagerLink, tracer: RecordingTracer) -> None:
    await manager.submit(msgspec.structs.replace(slot_job(1, kind=JobKind.FREE), free_tier=Tier.G2))
    await manager.result()
    attributes = tracer.only(SpanName.TRANSFER).attributes
    assert attributes["blockyard.job.kind"] == "free"
    assert attributes.keys().isdisjoint(("blockyard.edge", "blockyard.bytes"))


async def test_jobs_of_a_life_that_is_over_leave_no_span_open(
    manager: ManagerLink, executor: ScriptedExecutor, tracer: RecordingTracer
) -> None:
    """One runs and two wait when a new life attaches: those that wait never get a span."""
    executor.gate.clear()
    for seq in (1, 2, 3):
        await manager.submit(slot_job(seq, slots=(seq,)), trace=new_trace())
    await manager.attach(MANAGER_EPOCH + 1)
    assert len(tracer.open) == 1
    executor.gate.set()
    await manager.submit(slot_job(1, epoch=MANAGER_EPOCH + 1))
    await manager.result()
    assert (len(tracer.spans), tracer.open) == (2, [])
    assert executor.started == [1, 1]


async def test_the_end_of_the_server_ends_the_spans_of_what_runs(
    manager: ManagerLink, executor: ScriptedExecutor, tracer: RecordingTracer
) -> None:
    """The fixture of the server looks after it has stopped."""
    executor.gate.clear()
    await manager.submit(slot_job(1), trace=new_trace())
    await until_news(lambda: bool(executor.started), executor.news)
    assert len(tracer.open) == 1
