"""What the metrics of the block-manager say about a node that works, waits or misses something."""

from tests.unit.block_manager.world import BLOCK_BYTES, BLOCK_TOKENS, OW, MakeWorld, World

from blockyard.core.block_name import names_of
from blockyard.core.jobs import Refusal
from blockyard.core.name_lease import LeaseState
from blockyard.core.vocabulary import JobSeq
from blockyard.runtime.bus_values import BusState
from blockyard.runtime.http import Health
from blockyard.runtime.telemetry import Server
from blockyard.testing.blocks import chain
from blockyard_block_manager.lookups import local_sources
from blockyard_block_manager.readiness import Readiness

RUN = chain("a", 4)


def shown(world: World) -> World:
    world.core.update_gauges()
    return world


def up(world: World, name: str) -> float | None:
    return world.metrics.registry.get_sample_value("blockyard_dependency_up", {"name": name})


def test_the_size_of_a_block_is_shown(make_world: MakeWorld) -> None:
    world = make_world()
    assert world.counter("block_bytes") == BLOCK_BYTES
    assert world.counter("block_tokens") == BLOCK_TOKENS


def test_counters_that_alerts_wait_for_are_there_before_the_first_of_them(make_world: MakeWorld) -> None:
    text = make_world().metrics.exposition()[0].decode()
    for line in (
        'blockyard_dropped_total{reason="g3_queue_full"} 0.0',
        'blockyard_dropped_total{reason="refused_job_bad_request"} 0.0',
        'blockyard_evicted_blocks_total{tier="g3"} 0.0',
        'blockyard_lookup_blocks_total{outcome="hit",tier="g4"} 0.0',
        'blockyard_load_blocks_total{status="ok",tier="g2"} 0.0',
        'blockyard_load_blocks_total{status="timeout",tier="none"} 0.0',
        'blockyard_job_items_total{kind="g4_get",status="corrupt"} 0.0',
        'blockyard_jobs_total{end="lost",kind="g2_g3"} 0.0',
    ):
        assert line in text
    assert 'reason="refused_job"' not in text


def test_a_job_is_timed_from_its_order_to_its_submission_and_to_its_end(make_world: MakeWorld) -> None:
    world = make_world().ready()
    world.connect("one").compute(RUN)
    world.clock.advance(0.5)
    job = world.core.desk.take(OW)
    assert job is not None
    assert world.counter("job_wait_seconds_count", kind="g1_g2") == 1
    assert world.counter("job_wait_seconds_sum", kind="g1_g2") == 0.5
    world.clock.advance(0.25)
    world.core.desk.refused(JobSeq(job.seq), Refusal.BAD_REQUEST)
    assert world.counter("job_seconds_count", kind="g1_g2") == 1
    assert world.counter("job_seconds_sum", kind="g1_g2") == 0.75


def test_jobs_wait_in_their_lane_until_they_are_submitted(make_world: MakeWorld) -> None:
    world = make_world().ready()
    world.connect("one").compute(RUN)
    assert shown(world).counter("jobs_waiting", role="offload-worker", lane="store") == 1
    world.submit(OW)
    assert shown(world).counter("jobs_waiting", role="offload-worker", lane="store") == 0
    assert world.counter("jobs_unsettled", role="offload-worker") == 1


def test_events_wait_until_they_are_published(make_world: MakeWorld) -> None:
    world = make_world().ready()
    world.connect("one").compute(RUN)
    waiting = world.outbox.waiting
    assert waiting > 0
    assert shown(world).counter("events_waiting") == waiting
    world.outbox.mark_published(world.outbox.last_seq)
    assert shown(world).counter("events_waiting") == 0


def test_a_worker_that_hangs_is_down(make_world: MakeWorld) -> None:
    world = make_world().ready()
    readiness = Readiness(Health(), world.metrics, world.core)
    assert (up(world, "offload-worker"), up(world, "remote-tier")) == (1, 1)
    world.connect("one").compute(RUN)
    world.settle()
    world.connect("two").load(RUN, ttl_ms=2_000)
    while (job := world.core.desk.take(OW)) is not None:
        world.core.desk.table.sent(JobSeq(job.seq))
    world.clock.advance(1)
    local_sources(world.core, world.scope(), names_of(RUN))
    readiness.update()
    assert (up(world, "offload-worker"), up(world, "remote-tier")) == (0, 1)


def test_a_remote_tier_that_is_not_wanted_is_not_down(make_world: MakeWorld) -> None:
    world = make_world(g4=False).ready()
    Readiness(Health(), world.metrics, world.core)
    assert up(world, "remote-tier") is None


def test_one_state_of_the_lease_is_shown_at_a_time(make_world: MakeWorld) -> None:
    world = make_world()
    readiness = Readiness(Health(), world.metrics, world.core)
    for present in LeaseState:
        readiness.lease_changed(present)
        shown_states = [state for state in LeaseState if world.counter("lease_state", state=state) == 1]
        assert shown_states == [present]


def test_the_bus_is_up_while_it_is_connected(make_world: MakeWorld) -> None:
    world = make_world()
    readiness = Readiness(Health(), world.metrics, world.core)
    assert up(world, Server.NATS) == 0
    readiness.bus_changed(BusState.CONNECTED, "")
    assert up(world, Server.NATS) == 1
    readiness.bus_changed(BusState.AWAY, "")
    assert up(world, Server.NATS) == 0
