"""Copies to disk that never ran have another turn after a pause, a few times; what the disk refused has none."""

import pytest
from tests.unit.block_manager.test_disk_rules import BACK, keys, node
from tests.unit.block_manager.world import OW, MakeWorld, World

from blockyard.core.block_name import names_of
from blockyard.core.copy_retries import PAUSE_SECONDS, TRIES
from blockyard.core.jobs import Refusal
from blockyard.core.offload_plan import OffloadRules
from blockyard.core.vocabulary import ItemStatus, JobKind, JobSeq, Tier
from blockyard.testing.blocks import chain

RUN = chain("a", 8)
BOTH = pytest.mark.parametrize("rules", [OffloadRules(), BACK], ids=["write-through", "write-back"])


def refuse_copies(world: World) -> int:
    """The worker refuses each copy to disk and does everything else; returns how many it refused."""
    count = 0
    while (job := world.core.desk.take(OW)) is not None:
        if job.kind is JobKind.G2_G3:
            count += 1
            world.core.desk.table.sent(JobSeq(job.seq))
            world.core.desk.table.heard(OW)
            world.core.job_refused(JobSeq(job.seq), Refusal.TOMBSTONE)
        else:
            world._submit(OW, job)
            world.workers[OW].work()
            world.deliver(OW, everything=True)
    return count


def full_node(make_world: MakeWorld, rules: OffloadRules) -> World:
    """G2 is full, and the only copy of it to disk was refused."""
    world: World = make_world(g4=False, g2=8, g3=64, profile={"disk_rules": rules, "max_items": 8}).ready()
    world.connect("one").compute(RUN)
    assert refuse_copies(world) == 1
    assert (world.held(Tier.G2), world.held(Tier.G3)) == (keys(RUN), set())
    return world


@BOTH
def test_blocks_of_a_copy_that_never_ran_are_written_after_a_pause(make_world: MakeWorld, rules: OffloadRules) -> None:
    world = full_node(make_world, rules)
    world.settle()
    assert world.held(Tier.G3) == set(), "not at once"
    world.tick(PAUSE_SECONDS)
    world.settle()
    assert world.held(Tier.G3) == keys(RUN)
    world.at_rest()


def test_blocks_that_the_worker_had_no_time_for_have_another_turn(make_world: MakeWorld) -> None:
    world, one = node(make_world, OffloadRules(), max_items=8)
    world.workers[OW].fault = lambda job, item: ItemStatus.TIMEOUT if job.kind is JobKind.G2_G3 and item > 4 else None
    one.compute(RUN)
    world.settle()
    assert world.held(Tier.G3) == keys(RUN.slice(0, 5))
    world.workers[OW].fault = lambda job, item: None
    world.tick(PAUSE_SECONDS)
    world.settle()
    assert world.held(Tier.G3) == keys(RUN)
    world.at_rest()


@BOTH
def test_copies_that_never_run_are_given_up_after_a_few_turns(make_world: MakeWorld, rules: OffloadRules) -> None:
    world = full_node(make_world, rules)
    refused = 0
    for _ in range(3 * TRIES):
        world.tick(PAUSE_SECONDS)
        refused += refuse_copies(world)
    assert refused == TRIES
    assert world.held(Tier.G3) == set()


def test_blocks_that_leave_g2_before_their_next_turn_are_counted(make_world: MakeWorld) -> None:
    world = full_node(make_world, OffloadRules())
    world.engines["one"].compute(chain("b", 2), first_block=20)
    world.settle()
    assert world.counter("dropped_total", reason="gone_from_g2") == 2
    world.tick(PAUSE_SECONDS)
    world.settle()
    assert world.held(Tier.G3) == keys(RUN.slice(0, 6)) | keys(chain("b", 2))
    world.at_rest()


def test_a_block_that_was_used_since_its_copy_failed_is_counted_once_when_it_goes(make_world: MakeWorld) -> None:
    world = full_node(make_world, BACK)
    world.core._disk.used(world.scope(), names_of(RUN))
    world.core.tables.grant(Tier.G2, 2).release()
    assert world.counter("dropped_total", reason="gone_from_g2") == 2


def test_a_clear_of_the_disk_takes_back_the_next_turn(make_world: MakeWorld) -> None:
    world = full_node(make_world, OffloadRules())
    world.clear(Tier.G3)
    world.tick(PAUSE_SECONDS)
    world.settle()
    assert world.held(Tier.G3) == set()
    world.at_rest()
