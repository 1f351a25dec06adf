"""Who gets slots of G2 while some of its blocks are still to be written: what is lost by that is counted."""

import pytest
from tests.unit.block_manager.rank_kit import Ranks, ranks_of
from tests.unit.block_manager.test_disk_rules import BACK, BLOCK_BYTES, keys, node, refused
from tests.unit.block_manager.world import OW, Engine, MakeWorld, World

from blockyard.core.chain_run import ChainRun
from blockyard.core.offload_plan import OffloadRules, WritePolicy
from blockyard.core.vocabulary import ItemStatus, JobKind, Tier
from blockyard.testing.blocks import chain

RUN = chain("a", 8)
PROMPTS = [chain(f"prompt {number}", 1) for number in range(8)]
THROUGH = OffloadRules()


def lost(world: World) -> float:
    return world.counter("dropped_total", reason="gone_from_g2")


def with_unwritten_prompts(make_world: MakeWorld) -> tuple[World, Engine, set[bytes]]:
    """G2 is full of blocks of which half are written, and RUN lies in G3 alone; and the unwritten ones."""
    world, one = node(make_world, BACK, g2=8, g3=64)
    one.compute(RUN)
    world.settle()
    for number, prompt in enumerate(PROMPTS):
        one.compute(prompt, first_block=number)
        world.settle()
    unwritten = world.held(Tier.G2) - world.held(Tier.G3)
    assert keys(RUN) <= world.held(Tier.G3)
    assert (len(unwritten), lost(world)) == (4, 0)
    return world, one, unwritten


def with_disk_at_work(make_world: MakeWorld, rules: OffloadRules, run: ChainRun) -> tuple[World, Ranks]:
    """A run is in G2, one job of it is under way to the disk; and an engine whose ranks copy."""
    profile = {"disk_rules": rules, "max_items": 4, "g3_open_jobs": 1}
    world: World = make_world(g4=False, g2=16, g3=64, profile=profile).ready()
    ranks = ranks_of(world)
    world.connect("one").compute(run)
    while (job := world.core.desk.take(OW)) is not None:
        world._submit(OW, job)
    world.workers[OW].work()
    world.deliver(OW)
    return world, ranks


# --- loads ------------------------------------------------------------------------------------------------------------
def test_a_load_takes_what_is_written_first(make_world: MakeWorld) -> None:
    world, one, unwritten = with_unwritten_prompts(make_world)
    load = one.load(RUN.slice(0, 4), first_block=20)
    world.settle()
    assert world.outcomes[load].usable == 4
    assert unwritten <= world.held(Tier.G2) | world.held(Tier.G3)
    assert lost(world) == 0
    world.at_rest()


def test_what_a_load_pushes_out_of_g2_unwritten_is_counted(make_world: MakeWorld) -> None:
    world, one, unwritten = with_unwritten_prompts(make_world)
    load = one.load(RUN, first_block=20)
    world.settle()
    assert world.outcomes[load].usable == 8
    gone = unwritten - world.held(Tier.G2) - world.held(Tier.G3)
    assert lost(world) == len(gone) > 0
    world.at_rest()


def test_a_reserve_that_loads_have_used_up_grows_so_that_later_ones_push_out_nothing(make_world: MakeWorld) -> None:
    world, one = node(make_world, BACK, g2=64, g3=256)
    run = chain("long", 24)
    one.compute(run)
    world.settle()
    losses = []
    for round_ in range(4):
        for number in range(100):
            one.compute(chain(f"prompt {round_} {number}", 1), first_block=number % 32)
            world.settle()
        before = lost(world)
        load = one.load(run, first_block=33)
        world.settle()
        assert world.outcomes[load].usable == 24
        losses.append(lost(world) - before)
    assert losses == [21, 0, 0, 0]
    world.at_rest()


def test_what_was_refused_before_is_not_counted_again_when_it_goes(make_world: MakeWorld) -> None:
    world, one, _ = with_unwritten_prompts(make_world)
    world.workers[OW].fault = lambda job, item: ItemStatus.IO_ERROR if job.kind is JobKind.G2_G3 else None
    new = chain("new", 8)
    one.compute(new, first_block=30)
    world.settle()
    failed = world.counter("job_items_total", kind="g2_g3", status="io_error")
    assert failed > 0
    load = one.load(RUN, first_block=20)
    world.settle()
    assert world.outcomes[load].usable == 8
    assert not keys(new) <= world.held(Tier.G2) | world.held(Tier.G3)
    assert lost(world) == 0
    world.at_rest()


def test_a_block_that_waits_for_the_disk_and_goes_is_counted_once_and_waits_no_more(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False, g2=8, profile={"disk_rules": THROUGH, "g3_open_jobs": 0}).ready()
    one = world.connect("one")
    one.compute(RUN)
    world.settle()
    assert world.core._disk.waiting == 8
    one.compute(PROMPTS[0], first_block=20)
    world.settle()
    assert world.held(Tier.G2) == keys(RUN.slice(0, 7)) | keys(PROMPTS[0])
    assert lost(world) == 1
    assert world.core._disk.waiting == 8


# --- ranks ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rules", [THROUGH, BACK], ids=["write-through", "write-back"])
def test_slots_for_ranks_wait_for_the_disk_as_stores_do(make_world: MakeWorld, rules: OffloadRules) -> None:
    world, ranks = with_disk_at_work(make_world, rules, chain("b", 16))
    held = world.held(Tier.G2)
    assert (len(held), world.held(Tier.G3)) == (16, set())
    assert ranks.reserve(2).slots == (), "the disk is at work"
    assert world.held(Tier.G2) == held
    world.settle()
    assert len(ranks.reserve(2).slots) == 2
    assert lost(world) == 0


def test_free_slots_are_granted_to_ranks_whatever_waits_for_the_disk(make_world: MakeWorld) -> None:
    world, ranks = with_disk_at_work(make_world, THROUGH, chain("b", 8))
    assert world.core._disk.waiting > 0
    assert world.held(Tier.G3) == set()
    assert len(ranks.reserve(2).slots) == 2


@pytest.mark.parametrize("rules", [THROUGH, BACK], ids=["write-through", "write-back"])
def test_the_first_fill_of_g2_does_not_go_at_the_speed_of_the_disk(make_world: MakeWorld, rules: OffloadRules) -> None:
    profile = {"disk_rules": rules, "max_items": 4, "g3_open_jobs": 1}
    world: World = make_world(g4=False, g2=16, g3=64, profile=profile).ready()
    one = world.connect("one")
    for number in range(24):  # the disk never gets a copy done
        one.compute(chain(f"prompt {number}", 1), first_block=number)
        while (job := world.core.desk.take(OW)) is not None:
            if job.kind is not JobKind.G2_G3:
                world._submit(OW, job)
        world.workers[OW].work()
        world.deliver(OW, everything=True)
    assert len(world.held(Tier.G2)) == 16
    assert (world.held(Tier.G3), lost(world)) == (set(), 0)


def test_a_disk_that_gets_nothing_done_keeps_no_slots_from_ranks(make_world: MakeWorld) -> None:
    world: World = make_world(g4=False, g2=8, profile={"disk_rules": BACK, "g3_open_jobs": 0}).ready()
    ranks = ranks_of(world)
    world.connect("one").compute(RUN)
    world.settle()
    assert len(ranks.reserve(1).slots) == 1
    assert lost(world) == 1


# --- budget -----------------------------------------------------------------------------------------------------------
def test_what_the_budget_kept_from_disk_is_written_when_it_is_back(make_world: MakeWorld) -> None:
    world, one = node(make_world, OffloadRules(bytes_per_day=24 * 5 * BLOCK_BYTES), g2=8)
    one.compute(RUN)
    world.settle()
    assert world.held(Tier.G3) == keys(RUN.slice(0, 5))
    assert refused(world, "write_budget") == 3
    world.tick(1_200.0)
    world.settle()
    assert world.held(Tier.G3) == keys(RUN.slice(0, 5)), "less than all that wait is not worth a job"
    world.tick(2_400.0)
    world.settle()
    assert world.held(Tier.G3) == keys(RUN)
    world.at_rest()


def test_what_left_g2_before_the_budget_was_back_is_not_asked_about(make_world: MakeWorld) -> None:
    world, one = node(make_world, OffloadRules(bytes_per_day=24 * 5 * BLOCK_BYTES), g2=8)
    one.compute(RUN)
    world.settle()
    world.clear(Tier.G2)
    world.settle()
    assert len(world.core._disk._plan._postponed) == 0
    world.tick(7_200.0)
    world.settle()
    assert world.held(Tier.G3) == keys(RUN.slice(0, 5))
    assert refused(world, "write_budget") == 3
    world.at_rest()


def test_write_back_writes_what_the_budget_refused_before_it_has_to_go(make_world: MakeWorld) -> None:
    rules = OffloadRules(policy=WritePolicy.WRITE_BACK, bytes_per_day=24 * 4 * BLOCK_BYTES)
    world, one = node(make_world, rules, g2=8, g3=64)
    one.compute(RUN)
    world.settle()
    assert len(world.held(Tier.G3)) == 4
    world.tick(7_200.0)
    world.settle()
    assert len(world.held(Tier.G3)) == 4, "what is written is enough for what comes next"
    for number in range(3):
        one.compute(PROMPTS[number], first_block=20 + number)
        world.settle()
    assert world.held(Tier.G3) >= keys(RUN)
    world.at_rest()
