"""Which blocks of G2 reach G3: by prefix, by use, within the budget of the day, at once or when G2 gives them up."""

from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from tests.unit.block_manager.world import BLOCK_TOKENS, MODEL, OW, Engine, MakeWorld, World

from blockyard.core.chain_run import ChainRun
from blockyard.core.eviction.registry import policy_factory
from blockyard.core.offload_plan import OffloadRules, WritePolicy
from blockyard.core.vocabulary import ItemStatus, JobKind, Tier
from blockyard.testing.blocks import chain
from blockyard.wire.connector_channel import Group
from blockyard.wire.worker_channel import Job

BLOCK_BYTES = 4_096
BACK = OffloadRules(policy=WritePolicy.WRITE_BACK)


def keys(run: ChainRun) -> set[bytes]:
    return {bytes(key) for key in run}


def node(make_world: MakeWorld, rules: OffloadRules, max_items: int = 4, **sizes: object) -> tuple[World, Engine]:
    world: World = make_world(g4=False, profile={"disk_rules": rules, "max_items": max_items}, **sizes).ready()
    return world, world.connect("one")


def windowed(world: World) -> Engine:
    """An engine of which group 1 has a window of two blocks."""
    spec = f"full,sliding_window:{2 * BLOCK_TOKENS}"
    full = Group(engine_block_tokens=BLOCK_TOKENS)
    window = msgspec.structs.replace(full, group=1, kind="sliding_window", window_tokens=2 * BLOCK_TOKENS)
    return world.connect("one", groups=(full, window), identity=replace(MODEL, group_spec=spec))


def refused(world: World, reason: str) -> float:
    return world.counter("not_written_blocks_total", reason=reason)


# --- prefixes ---------------------------------------------------------------------------------------------------------
def test_a_block_whose_parent_failed_on_disk_brings_it_along_when_it_comes_again(make_world: MakeWorld) -> None:
    world, one = node(make_world, OffloadRules())
    run = chain("a", 4)
    world.workers[OW].fault = lambda job, item: ItemStatus.IO_ERROR if job.kind is JobKind.G2_G3 else None
    one.compute(run.slice(0, 3))
    world.settle()
    assert world.held(Tier.G3) == set()
    world.workers[OW].fault = lambda job, item: None
    one.compute(run.slice(3, 4), first_block=10)
    world.settle()
    assert world.held(Tier.G3) == keys(run)
    world.at_rest()


def test_a_block_is_not_written_behind_a_hole(make_world: MakeWorld) -> None:
    world, one = node(make_world, OffloadRules())
    run = chain("a", 4)
    one.compute(run.slice(2, 4))
    world.settle()
    assert world.held(Tier.G2) == keys(run.slice(2, 4))
    assert world.held(Tier.G3) == set()
    assert refused(world, "parent_absent") == 2
    one.compute(run.slice(0, 2), first_block=10)
    world.settle()
    assert world.held(Tier.G3) == keys(run.slice(0, 2)), "the others are not offered again by that"
    world.at_rest()


def test_what_follows_a_prompt_that_an_engine_keeps_reaches_disk_after_a_clear(make_world: MakeWorld) -> None:
    world, one = node(make_world, OffloadRules())
    run = chain("a", 4)
    one.compute(run.slice(0, 2))
    world.settle()
    world.core.clear_all(lambda _: None)
    world.settle()
    assert world.held(Tier.G2) == world.held(Tier.G3) == set()
    one.compute(run.slice(2, 4), first_block=10)
    world.settle()
    assert world.held(Tier.G3) == keys(run.slice(2, 4))
    assert refused(world, "parent_absent") == 0
    world.at_rest()


@pytest.mark.parametrize("rules", [OffloadRules(), BACK], ids=["write-through", "write-back"])
def test_rows_of_a_window_are_written_though_the_window_passed_those_before_them(
    make_world: MakeWorld, rules: OffloadRules
) -> None:
    world: World = make_world(g4=False, profile={"disk_rules": rules, "max_items": 4}, g2=8).ready()
    one = windowed(world)
    run = chain("a", 4)
    world.core.register(one.session, one.fill(run.slice(2, 4), group=1))
    world.settle()
    world.core.register(one.session, one.fill(chain("b", 8), first_block=10))
    world.settle()
    assert world.held(Tier.G3) >= keys(run.slice(2, 4))
    assert refused(world, "parent_absent") == 0
    world.at_rest()


@pytest.mark.parametrize("rules", [OffloadRules(), BACK], ids=["write-through", "write-back"])
def test_rows_of_a_window_that_were_left_by_an_earlier_life_are_written_once_an_engine_tells_of_it(
    make_world: MakeWorld, rules: OffloadRules
) -> None:
    world: World = make_world(g4=False, profile={"disk_rules": rules, "max_items": 4}, g2=8, g3=64).ready()
    one, run, rest = windowed(world), chain("a", 4).slice(2, 4), chain("b", 6)
    world.workers[OW].fault = lambda job, item: ItemStatus.IO_ERROR if job.kind is JobKind.G2_G3 else None
    world.core.register(one.session, one.fill(rest))
    world.core.register(one.session, one.fill(run, first_block=10, group=1))
    world.settle()
    assert (world.held(Tier.G2), world.held(Tier.G3)) == (keys(run) | keys(rest), set())
    world.workers[OW].fault = lambda job, item: None
    world.start_manager()
    world.ready()
    assert refused(world, "parent_absent") == 2
    assert not keys(run) & world.held(Tier.G3)
    one = windowed(world)
    world.settle()
    world.core.register(one.session, one.fill(chain("c", 8), first_block=20))
    world.settle()
    assert keys(run) <= world.held(Tier.G3)
    assert refused(world, "parent_absent") == 2
    world.at_rest()


def test_a_chain_that_fills_the_disk_does_not_push_out_its_own_prefix(make_world: MakeWorld) -> None:
    world, one = node(make_world, OffloadRules(), max_items=8, g2=16, g3=8)
    run = chain("a", 12)
    one.compute(run)
    world.settle()
    assert world.held(Tier.G3) == keys(run.slice(0, 8))
    assert refused(world, "next_victim") == 4
    assert world.counter("evicted_blocks_total", tier="g3") == 0
    world.at_rest()


def test_what_is_used_in_g2_stays_on_disk_longer(make_world: MakeWorld) -> None:
    world, one = node(make_world, OffloadRules(), g2=32, g3=8)
    hot, cold = chain("hot", 4), chain("cold", 4)
    one.compute(hot)
    one.compute(cold, first_block=10)
    world.settle()
    assert world.held(Tier.G3) == keys(hot) | keys(cold)
    one.load(hot, first_block=20)
    world.settle()
    one.compute(chain("new", 4), first_block=30)
    world.settle()
    assert world.held(Tier.G3) == keys(hot) | keys(chain("new", 4))
    world.at_rest()


# --- use and budget ---------------------------------------------------------------------------------------------------
def test_with_a_threshold_a_block_is_written_at_its_second_use(make_world: MakeWorld) -> None:
    world, one = node(make_world, OffloadRules(least_uses=2))
    run = chain("a", 3)
    one.compute(run)
    world.settle()
    assert world.held(Tier.G3) == set()
    assert refused(world, "too_few_uses") == 3
    load = one.load(run.slice(0, 2))
    world.settle()
    assert world.outcomes[load].usable == 2
    assert world.held(Tier.G3) == keys(run.slice(0, 2))
    world.connect("two").compute(run)
    world.settle()
    assert world.held(Tier.G3) == keys(run), "another engine computed it too"
    world.at_rest()


def test_no_more_than_the_budget_is_written_and_stores_go_on(make_world: MakeWorld) -> None:
    world, one = node(make_world, OffloadRules(bytes_per_day=24 * 5 * BLOCK_BYTES), g2=8)
    run = chain("a", 16)
    one.compute(run)
    world.settle()
    assert world.held(Tier.G3) == keys(run.slice(0, 5))
    assert len(world.held(Tier.G2)) == 8
    assert refused(world, "write_budget") > 0
    world.tick(3_600.0)
    one.compute(chain("b", 8), first_block=20)
    world.settle()
    assert len(world.held(Tier.G3)) == 9
    world.at_rest()


def test_bytes_of_jobs_that_never_ran_are_given_back(make_world: MakeWorld) -> None:
    world, one = node(make_world, OffloadRules(bytes_per_day=24 * 4 * BLOCK_BYTES), g2=8)
    one.compute(chain("a", 4))
    world.submit(OW)
    world.workers[OW].work()
    world.deliver(OW)
    world.clear(Tier.G3)
    one.compute(chain("b", 4), first_block=20)
    world.settle()
    assert world.held(Tier.G3) == keys(chain("b", 4))
    world.at_rest()


# --- write-back -------------------------------------------------------------------------------------------------------
def test_write_back_leaves_the_disk_alone_while_g2_has_room(make_world: MakeWorld) -> None:
    world, one = node(make_world, BACK, g2=16)
    one.compute(chain("a", 8))
    world.settle()
    assert world.held(Tier.G2) == keys(chain("a", 8))
    assert world.held(Tier.G3) == set()
    world.at_rest()


def test_write_back_loses_nothing_that_g2_gives_up(make_world: MakeWorld) -> None:
    world, one = node(make_world, BACK, g2=16, g3=64)
    run = chain("a", 40)
    one.compute(run)
    world.settle()
    assert world.held(Tier.G2) | world.held(Tier.G3) == keys(run)
    assert len(world.held(Tier.G2)) == 16
    assert world.counter("dropped_total", reason="gone_from_g2") == 0
    world.at_rest()


def test_what_write_back_wrote_can_be_loaded_and_its_copy_on_disk_stays(make_world: MakeWorld) -> None:
    world, one = node(make_world, BACK, g2=16, g3=64)
    run = chain("a", 24)
    one.compute(run)
    world.settle()
    written = world.held(Tier.G3)
    load = one.load(run.slice(0, 8))
    world.settle()
    assert world.outcomes[load].usable == 8
    assert written <= world.held(Tier.G3)
    world.at_rest()


def test_write_back_to_a_disk_that_fails_holds_no_store_up(make_world: MakeWorld) -> None:
    world, one = node(make_world, BACK, g2=8, g3=64)
    world.workers[OW].fault = lambda job, item: ItemStatus.IO_ERROR if job.kind is JobKind.G2_G3 else None
    run = chain("a", 24)
    one.compute(run)
    world.settle()
    assert len(world.held(Tier.G2)) == 8
    assert world.held(Tier.G3) == set()
    writes = world.counter("job_items_total", kind="g2_g3", status="io_error")
    assert 0 < writes <= 24, "what failed is not tried again before it is used again"
    world.at_rest()


def test_write_back_stays_within_its_budget_and_stores_go_on(make_world: MakeWorld) -> None:
    rules = OffloadRules(policy=WritePolicy.WRITE_BACK, bytes_per_day=24 * 5 * BLOCK_BYTES)
    world, one = node(make_world, rules, g2=8, g3=64)
    one.compute(chain("a", 30))
    world.settle()
    assert len(world.held(Tier.G3)) == 5
    assert len(world.held(Tier.G2)) == 8
    assert refused(world, "write_budget") >= 1
    world.at_rest()


def test_write_back_goes_on_after_the_disk_was_cleared(make_world: MakeWorld) -> None:
    world, one = node(make_world, BACK, g2=8, g3=64)
    one.compute(chain("a", 20))
    world.settle()
    done = world.clear(Tier.G3)
    world.settle()
    assert len(done) == 1
    one.compute(chain("b", 20), first_block=30)
    world.settle()
    assert keys(chain("b", 20)) <= world.held(Tier.G2) | world.held(Tier.G3)
    world.at_rest()


def test_write_back_keeps_a_reserve_so_that_no_store_waits_for_the_disk(make_world: MakeWorld) -> None:
    world, one = node(make_world, BACK, g2=16, g3=64)
    one.compute(chain("a", 16))
    world.settle()
    assert world.held(Tier.G3) == keys(chain("a", 16)), "the tail is next, and its prefix came along"
    one.compute(chain("b", 1), first_block=20)
    job = world.core.desk.take(OW)
    assert isinstance(job, Job)
    assert job.kind is JobKind.G1_G2


def test_write_back_waits_for_the_disk_where_nothing_is_in_reserve(make_world: MakeWorld) -> None:
    world, one = node(make_world, BACK, g2=16, g3=64)
    one.compute(chain("a", 16))
    kinds = []
    while (job := world.core.desk.take(OW)) is not None:
        kinds.append(job.kind)
        world._submit(OW, job)
    world.workers[OW].work()
    world.deliver(OW)
    one.compute(chain("b", 4), first_block=20)
    while (job := world.core.desk.take(OW)) is not None:
        kinds.append(job.kind)
        world._submit(OW, job)
    assert kinds == [JobKind.G1_G2] * 4 + [JobKind.G2_G3] * 4
    world.settle()
    assert len(world.held(Tier.G2)) == 16
    assert keys(chain("b", 4)) <= world.held(Tier.G2)
    world.at_rest()


def test_write_back_gives_up_nothing_unwritten_while_its_reserve_is_between_the_marks(make_world: MakeWorld) -> None:
    world, one = node(make_world, BACK, max_items=8, g2=64, g3=128)
    prompts, new = [chain(f"prompt {number}", 1) for number in range(64)], chain("new", 8)
    for number, prompt in enumerate(prompts):
        one.compute(prompt, first_block=number)
        world.settle()
    reserve = [number for number, prompt in enumerate(prompts) if keys(prompt) <= world.held(Tier.G3)]
    assert reserve == list(range(len(reserve))), "the coldest stay the next to go, also while and after they are read"
    assert 5 < len(reserve) <= 16
    for number in reserve[:-5]:  # what is used again does not go next: five of the reserve are left
        one.load(prompts[number], first_block=number)
        world.settle()
    world.connect("two").compute(new)
    world.settle()
    assert set().union(keys(new), *map(keys, prompts)) == world.held(Tier.G2) | world.held(Tier.G3)
    world.at_rest()


def test_what_left_g2_while_it_waited_or_was_written_is_not_remembered(make_world: MakeWorld) -> None:
    world, one = node(make_world, BACK, g2=16, g3=64)
    world.workers[OW].fault = lambda job, item: ItemStatus.CORRUPT if job.kind is JobKind.G2_G3 else None
    one.compute(chain("a", 16))
    world.settle()
    assert world.held(Tier.G3) == set()
    ahead = world.core._disk._ahead
    assert ahead is not None
    assert {bytes(key) for key, _ in ahead._given_up} <= world.held(Tier.G2)
    world.at_rest()


# --- order ------------------------------------------------------------------------------------------------------------
def test_a_copy_to_a_lower_tier_is_no_use_of_a_block(make_world: MakeWorld) -> None:
    world: World = make_world().ready()
    uses: Counter[bytes] = Counter()
    world.core.tables.pool(Tier.G2).registry.observe(lambda tier, group, keys: uses.update(map(bytes, keys)))
    run = chain("a", 4)
    world.connect("one").compute(run)
    world.settle()
    world.tick(60.0)
    world.settle()
    assert world.held(Tier.G3) == world.announced(Tier.G4) == keys(run)
    assert uses == Counter({bytes(key): 2 for key in run}), "registered in G2, and in G3"
    world.at_rest()


@pytest.mark.parametrize("policy", ["lru", "tide", "lineage"])
def test_of_a_prompt_that_is_stored_in_several_jobs_the_tail_leaves_first(make_world: MakeWorld, policy: str) -> None:
    made = policy_factory(policy)
    profile = {"max_items": 4, "g2_eviction": made, "g3_eviction": made}
    world: World = make_world(g4=False, g2=24, g3=24, profile=profile).ready()
    one, run = world.connect("one"), chain("a", 20)
    for start in range(0, 20, 10):
        one.compute(run.slice(start, start + 10), first_block=start)
        world.settle()
    for tier in (Tier.G2, Tier.G3):
        victims = world.core.tables.next_victims(tier, 20)
        assert [bytes(block.key) for block in victims] == [bytes(key) for key in run.keys()[::-1]]
    one.compute(chain("b", 10), first_block=30)
    world.settle()
    assert world.held(Tier.G2) == keys(run.slice(0, 14)) | keys(chain("b", 10))
    world.at_rest()


def test_write_back_does_not_look_at_its_reserve_for_every_block(make_world: MakeWorld) -> None:
    world, one = node(make_world, BACK, max_items=4, g2=512, g3=1_024)
    for number in range(8):
        one.compute(chain(f"prompt {number}", 64), first_block=0)
        world.settle()
    tables, looks = world.core.tables, Counter[int]()
    next_victims = tables.next_victims
    tables.next_victims = lambda tier, count: looks.update({count: 1}) or next_victims(tier, count)  # type: ignore[method-assign]
    for number in range(64):
        one.compute(chain(f"block {number}", 1), first_block=0)
        world.settle()
    assert 0 < (rows := sum(count * times for count, times in looks.items())) < 64 * 12, rows
    world.at_rest()
