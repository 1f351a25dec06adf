"""The queue before G3 is full: what can wait where it is pushes nothing out of the queue, and is asked for again."""

import pytest
from tests.unit.block_manager.test_disk_rules import BACK, BLOCK_BYTES, keys, node
from tests.unit.block_manager.world import OW, MakeWorld, World

from blockyard.core.offload_plan import OffloadRules
from blockyard.core.vocabulary import ItemStatus, JobKind, Tier
from blockyard.testing.blocks import chain

DAY_OF_8 = OffloadRules(bytes_per_day=24 * 8 * BLOCK_BYTES)


def dropped(world: World) -> float:
    return world.counter("dropped_total", reason="g3_queue_full")


def test_what_the_budget_kept_back_waits_until_the_queue_has_room(make_world: MakeWorld) -> None:
    profile = {"disk_rules": DAY_OF_8, "max_items": 4, "g3_open_jobs": 1, "g3_queue_blocks": 4}
    world: World = make_world(g4=False, g2=32, g3=64, profile=profile).ready()
    one, next_, late = world.connect("one"), chain("next", 4), [chain(f"late {number}", 1) for number in range(8)]
    for start in (0, 4):
        one.compute(chain("first", 8).slice(start, start + 4), first_block=start)
        world.settle()
    for number, prompt in enumerate(late):
        one.compute(prompt, first_block=10 + number)
        world.settle()
    assert len(world.held(Tier.G3)) == 8
    world.tick(2_000.0)  # there are bytes for four of them
    one.compute(next_, first_block=20)
    later = []
    while (job := world.core.desk.take(OW)) is not None:
        if job.kind is JobKind.G2_G3:
            later.append(job)
        else:
            world._submit(OW, job)
    world.workers[OW].work()
    world.deliver(OW, everything=True)
    assert (len(later), world.core._disk.waiting) == (1, 4), "the queue is full, and its only job is under way"
    world.clock.advance(3_600.0)
    world.core._end_section()
    assert world.core._disk.waiting == 4
    for job in later:
        world._submit(OW, job)
    world.settle()
    for _ in range(4):
        world.tick(3_600.0)
        world.settle()
    assert set().union(keys(next_), *map(keys, late)) <= world.held(Tier.G3)
    assert dropped(world) == 0
    world.at_rest()


def test_write_back_loses_nothing_where_its_reserve_is_larger_than_the_queue(make_world: MakeWorld) -> None:
    profile = {"disk_rules": BACK, "max_items": 16, "g3_queue_blocks": 4}
    world: World = make_world(g4=False, g2=64, g3=256, profile=profile).ready()
    one, prompts = world.connect("one"), [chain(f"prompt {number}", 1) for number in range(80)] + [chain("long", 40)]
    for number, prompt in enumerate(prompts):
        one.compute(prompt, first_block=number % 64)
        world.settle()
    assert set().union(*map(keys, prompts)) == world.held(Tier.G2) | world.held(Tier.G3)
    assert world.counter("dropped_total", reason="gone_from_g2") == 0
    world.at_rest()


@pytest.mark.parametrize(
    "limit", [{"g3_queue_blocks": 4}, {"g3_queue_bytes": 4 * BLOCK_BYTES}], ids=["blocks", "bytes"]
)
def test_what_an_earlier_life_left_in_g2_is_offered_as_far_as_the_queue_has_room(
    make_world: MakeWorld, limit: dict[str, object]
) -> None:
    world, one = node(make_world, OffloadRules(), g2=32, g3=64)
    run = chain("a", 24)
    world.workers[OW].fault = lambda job, item: ItemStatus.IO_ERROR if job.kind is JobKind.G2_G3 else None
    one.compute(run)
    world.settle()
    assert (len(world.held(Tier.G2)), len(world.held(Tier.G3))) == (24, 0)
    world.workers[OW].fault = lambda job, item: None
    world._overrides.update({"listing_part": 8, "g3_open_jobs": 1, **limit})
    world.start_manager()
    world.ready()
    assert world.held(Tier.G3) == keys(run)
    assert dropped(world) == 0
    world.at_rest()
