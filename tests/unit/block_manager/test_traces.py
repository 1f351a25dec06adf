"""Which spans the decisions make, what caused them, and that each of them ends whatever happens."""

from collections.abc import Sequence

import pytest
from tests.unit.block_manager.world import OW, RT, Engine, MakeWorld, World

from blockyard.core.block_name import names_of
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import RequestError
from blockyard.core.vocabulary import EngineBlockId, Guard, ItemStatus, JobSeq, LoadId, RequestId, Tier, WorkerRole
from blockyard.runtime.span_names import SpanName
from blockyard.runtime.spans import MOST_LINKS
from blockyard.testing.blocks import chain
from blockyard.testing.recording_tracer import RecordedSpan
from blockyard.wire.trace_parent import NO_TRACE, TraceParent, is_sampled, new_trace, trace_id_of
from blockyard_block_manager import pack_writer
from blockyard_block_manager.causes import NO_CAUSE, Cause, cause_of


def compute(engine: Engine, run: ChainRun, trace: TraceParent, first_block: int = 0) -> None:
    engine.world.core.register(engine.session, engine.fill(run, first_block), trace)


def load(engine: Engine, run: ChainRun, trace: TraceParent, first_block: int = 20, ttl_ms: int = 10_000) -> LoadId:
    blocks = [EngineBlockId(first_block + index) for index in range(len(run))]
    guards = [Guard(engine.memory.guards[block]) for block in blocks]
    world, request = engine.world, RequestId("r")
    return world.core.open_load(
        engine.session, request, world.scope(), names_of(run), blocks, guards, ttl_ms, world.finished, trace
    )


def jobs(world: World, kind: str) -> list[RecordedSpan]:
    return [span for span in world.tracer.of(SpanName.JOB) if span.attributes["blockyard.job.kind"] == kind]


def stored_down_to_g4(make_world: MakeWorld, run: ChainRun, trace: TraceParent = NO_TRACE) -> Engine:
    engine = make_world().ready().connect("one")
    world: World = engine.world
    compute(engine, run, trace)
    world.settle()
    world.tick(5.0)  # the tail of the chain rests
    world.settle()
    return engine


def only_in(world: World, tiers: Sequence[Tier]) -> None:
    for tier in tiers:
        assert world.clear(tier) == []
        world.settle()


# --- stores -------------------------------------------------------------------------------------------------------
def test_every_job_that_a_store_leads_to_belongs_to_its_trace(make_world: MakeWorld) -> None:
    trace = new_trace()
    world = stored_down_to_g4(make_world, chain("a", 4), trace).world
    for kind in ("g1_g2", "g2_g3", "g4_put"):
        (job,) = jobs(world, kind)
        assert job.parent == trace
        assert job.attributes["blockyard.items"] == 4
        assert job.attributes["blockyard.status.ok"] == 4
        assert job.attributes["blockyard.job.end"] == "result"
    assert world.tracer.open == []


def test_a_job_for_several_stores_belongs_to_the_first_recorded_and_links_to_the_others(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    engine = world.connect("one")
    first, second = new_trace(), new_trace()
    world.lose(OW)
    for number, trace in enumerate((new_trace(sampled=False), first, second, new_trace(sampled=False))):
        compute(engine, chain(f"chain {number}", 2), trace, first_block=2 * number)
    world.attach(OW)
    world.settle()
    for kind in ("g1_g2", "g2_g3"):
        (job,) = jobs(world, kind)
        assert job.parent == first
    assert jobs(world, "g1_g2")[0].links == [second]


def test_a_job_for_nobody_begins_a_trace(make_world: MakeWorld) -> None:
    world = stored_down_to_g4(make_world, chain("a", 2)).world
    assert {span.parent for span in world.tracer.of(SpanName.JOB)} == {NO_TRACE}


def test_causes_are_bounded() -> None:
    traces = [new_trace() for _ in range(20)]
    cause = cause_of([NO_TRACE, traces[0], *traces])
    assert (cause.trace, cause.also) == (traces[0], tuple(traces[1:9]))


def test_where_no_cause_is_recorded_the_first_hands_its_context_on() -> None:
    traces = [new_trace(sampled=False) for _ in range(3)]
    assert cause_of([NO_TRACE, *traces]) == Cause(traces[0])
    assert cause_of([NO_TRACE]) == NO_CAUSE


# --- loads --------------------------------------------------------------------------------------------------------
def test_a_load_and_its_jobs_on_every_way(make_world: MakeWorld) -> None:
    run = chain("a", 4)
    engine = stored_down_to_g4(make_world, run)
    world = engine.world
    for source, stage, gone in (
        (Tier.G2, None, ()),
        (Tier.G3, "g3_g2", (Tier.G2,)),
        (Tier.G4, "g4_get", (Tier.G2, Tier.G3)),
    ):
        only_in(world, gone)
        world.tracer.spans.clear()
        trace = new_trace()
        load(engine, run, trace)
        world.settle()
        span = world.tracer.only(SpanName.LOAD)
        assert (span.parent, span.attributes["blockyard.blocks"]) == (trace, 4)
        assert span.attributes[f"blockyard.loaded.{source.label}"] == 4
        assert span.attributes["blockyard.status.ok"] == 4
        below = [job for job in world.tracer.of(SpanName.JOB) if job.parent == span.traceparent]
        kinds = {job.attributes["blockyard.job.kind"] for job in below}
        assert {"g2_g1", stage} - {None} <= kinds
        assert {trace_id_of(job.traceparent) for job in below} == {trace_id_of(trace)}
        assert world.tracer.open == []


def test_the_message_of_a_job_carries_the_context_of_its_span(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    compute(world.connect("one"), chain("a", 2), new_trace())
    world.submit(OW)
    ((seq, sent),) = world.sent_traces.items()
    assert sent == world.tracer.only(SpanName.JOB).traceparent
    world.settle()
    assert world.core.desk.trace_of(JobSeq(seq)) == NO_TRACE


def test_the_wait_for_the_worker_is_told(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    compute(world.connect("one"), chain("a", 2), new_trace())
    world.tick(0.25)
    world.submit(OW)
    assert world.tracer.only(SpanName.JOB).attributes["blockyard.wait_seconds"] == pytest.approx(0.25)


def test_a_load_that_joins_the_stage_of_another_links_to_it(make_world: MakeWorld) -> None:
    run = chain("a", 4)
    engine = stored_down_to_g4(make_world, run)
    world = engine.world
    only_in(world, [Tier.G2])
    world.tracer.spans.clear()
    load(engine, run, new_trace())
    load(engine, run, new_trace(), first_block=30)
    world.settle()
    first, second = world.tracer.of(SpanName.LOAD)
    (stage,) = jobs(world, "g3_g2")
    assert stage.parent == first.traceparent
    assert (first.links, second.links) == ([], [first.traceparent])


def test_a_load_links_to_the_first_recorded_of_many(make_world: MakeWorld) -> None:
    run = chain("a", MOST_LINKS + 3)
    world = make_world(g4=False).ready()
    storing = world.connect("one")
    traces = [new_trace(sampled=block != 1) for block in range(len(run))]
    for block, trace in enumerate(traces):
        compute(storing, run.slice(block, block + 1), trace, first_block=block)
    load(world.connect("two"), run, new_trace())
    world.settle()
    recorded = [trace for trace in traces if is_sampled(trace)]
    assert world.tracer.only(SpanName.LOAD).links == recorded[:MOST_LINKS]
    assert [job.parent for job in jobs(world, "g1_g2")] == recorded


def test_a_refused_load_and_one_of_an_unrecorded_trace_leave_no_span(make_world: MakeWorld) -> None:
    run = chain("a", 2)
    engine = stored_down_to_g4(make_world, run)
    world = engine.world
    world.tracer.spans.clear()
    with pytest.raises(RequestError):
        load(engine, run, new_trace(), first_block=0)  # registered
    load(engine, run, new_trace(sampled=False))
    world.settle()
    assert len(world.outcomes) == 1
    assert world.tracer.spans == []


# --- ends on every path -------------------------------------------------------------------------------------------
def in_the_middle(make_world: MakeWorld) -> tuple[World, Engine]:
    """A store, a load at its last hop, one in its stage, and one that waits for the index; no worker has moved on."""
    engine = stored_down_to_g4(make_world, chain("a", 4))
    world = engine.world
    only_in(world, [Tier.G2])
    load(engine, chain("a", 4), new_trace())
    load(engine, chain("elsewhere", 2), new_trace(), first_block=30)
    compute(engine, chain("b", 2), new_trace(), first_block=10)
    world.submit(OW)
    assert len(world.tracer.open) >= 4
    return world, engine


@pytest.mark.parametrize("worker", [OW, RT])
def test_spans_end_where_a_worker_is_lost_for_good(make_world: MakeWorld, worker: WorkerRole) -> None:
    world, _ = in_the_middle(make_world)
    world.restart(worker)
    world.attach(worker)
    world.settle()
    world.tick(20.0)
    world.settle()
    assert world.tracer.open == []
    assert ("lost" in {span.error for span in world.tracer.of(SpanName.JOB)}) is (worker is OW)


def test_spans_of_an_engine_that_goes_end(make_world: MakeWorld) -> None:
    world, engine = in_the_middle(make_world)
    world.core.close_session(engine.session)
    world.settle()
    assert world.tracer.open == []


def test_spans_of_what_expires_end_with_the_reason(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    engine = world.connect("one")
    compute(engine, chain("a", 2), new_trace())
    world.tick(60.0)
    assert world.tracer.open == []
    assert world.tracer.only(SpanName.JOB).error == "never_ran"


def test_spans_end_with_the_life_of_the_block_manager(make_world: MakeWorld) -> None:
    world, _ = in_the_middle(make_world)
    tracer = world.tracer
    world.close()
    assert tracer.open == []
    assert {span.error for span in tracer.of(SpanName.LOAD)} == {"life_over"}
    world.start_manager()


def test_contexts_of_traces_that_nobody_records_pass_through(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    trace = new_trace(sampled=False)
    compute(world.connect("one"), chain("a", 2), trace)
    world.settle()
    assert trace in world.sent_traces.values()
    assert world.tracer.spans == []


def test_the_question_to_the_index_belongs_to_the_load_that_asks(make_world: MakeWorld) -> None:
    world = make_world().ready()
    load(world.connect("one"), chain("elsewhere", 2), new_trace())
    (question,) = world.index.questions
    assert question.trace == world.tracer.only(SpanName.LOAD).traceparent
    world.settle()
    assert world.tracer.open == []


def test_what_packs_are_put_for_is_forgotten_with_the_put_and_with_the_block(make_world: MakeWorld) -> None:
    world = stored_down_to_g4(make_world, chain("a", 4), new_trace()).world
    assert world.core._packs._causes == {}
    compute(world.engines["one"], chain("b", 2), new_trace(), first_block=10)
    world.settle()
    assert len(world.core._packs._causes) == 2  # the tail of the chain still rests
    only_in(world, [Tier.G2])
    assert world.core._packs._causes == {}


def test_a_put_that_is_repeated_is_of_the_same_trace(make_world: MakeWorld) -> None:
    world = make_world().ready()
    world.workers[RT].fault = lambda job, item: ItemStatus.UNKNOWN
    trace = new_trace()
    compute(world.connect("one"), chain("a", 4), trace)
    world.settle()
    world.workers[RT].fault = lambda job, item: None
    for _ in range(10):
        world.tick(5.0)
        world.settle()
    assert [put.parent for put in jobs(world, "g4_put")] == [trace, trace]
    assert world.core._packs._causes == {}


def test_what_packs_are_put_for_is_bounded(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_writer, "_MOST_CAUSES", 3)
    world = make_world().ready()
    for number in range(3):
        compute(world.connect("one"), chain(f"chain {number}", 2), new_trace(), first_block=2 * number)
        world.settle()
        assert len(world.core._packs._causes) <= 3
