"""All eight fences up: no order of an engine's writes and copies lets a wrong byte through. One down: some order does.

Where the ranks copy, they do it with the rank half of the vLLM connector, whose scheduler half is scripted.
Runs follow from their seeds alone, so a fence that is needed in one of these runs is needed in it for ever.
"""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockyard.core.vocabulary import Executor
from blockyard.testing.sim_engine import SimEngine
from blockyard.testing.sim_ranks import Findings
from blockyard.tiers.device.fences import Fence, Fences

TURNS = 2_000
SEEDS = 60
EXECUTORS = (Executor.ENGINE, Executor.MAPPED)


def run(
    seed: int,
    executor: Executor,
    without: Iterable[Fence] = (),
    *,
    ranks: int = 2,
    turns: int = TURNS,
    compares_guards: bool = True,
) -> Findings:
    with SimEngine(seed, Fences(without), executor, ranks=ranks, compares_guards=compares_guards) as engine:
        return engine.run(turns)


def wrong_within(seeds: int, executor: Executor, fence: Fence, *, slots: bool = False, reads: bool = False) -> bool:
    """Whether one of these runs shows wrong bytes in published slots, or in what compute reads."""
    runs = (run(seed, executor, [fence]) for seed in range(seeds))
    return any((slots and found.wrong_slots) or (reads and found.wrong_reads) for found in runs)


# --- all up -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("executor", EXECUTORS)
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), ranks=st.integers(1, 3))
def test_with_all_fences_no_wrong_byte_is_stored_or_read(executor: Executor, seed: int, ranks: int) -> None:
    found = run(seed, executor, ranks=ranks, turns=800)
    assert (found.wrong_slots, found.wrong_reads) == (0, 0)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_runs_do_what_the_fences_are_about(executor: Executor) -> None:
    found = [run(seed, executor) for seed in range(6)]
    assert not any(one.wrong for one in found)
    assert sum(one.reads for one in found) > 10_000
    assert sum(one.stored for one in found) > 100
    assert sum(one.loaded for one in found) > 30
    assert sum(one.sibling_loads for one in found) > 30


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_run_follows_from_its_seed(executor: Executor) -> None:
    assert run(5, executor, [Fence.ENDS_ARE_QUERIED]) == run(5, executor, [Fence.ENDS_ARE_QUERIED])


# --- one down: executor engine ------------------------------------------------------------------------------------
def test_1_a_store_that_does_not_wait_for_its_step_copies_what_was_there_before() -> None:
    assert wrong_within(SEEDS, Executor.ENGINE, Fence.STORE_AFTER_STEP, slots=True)


def test_2_a_load_that_does_not_wait_for_compute_lands_under_a_step_that_still_uses_the_block() -> None:
    assert wrong_within(SEEDS, Executor.ENGINE, Fence.LOAD_AFTER_COMPUTE, reads=True)


def test_3_a_step_that_does_not_wait_for_stores_rewrites_what_they_are_reading() -> None:
    assert wrong_within(SEEDS, Executor.ENGINE, Fence.REWRITE_AFTER_STORE, slots=True)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_4_a_copy_reported_before_its_end_publishes_half_a_slot_and_lets_compute_read_half_a_load(
    executor: Executor,
) -> None:
    assert wrong_within(SEEDS, executor, Fence.ENDS_ARE_QUERIED, slots=True)
    assert wrong_within(SEEDS, executor, Fence.ENDS_ARE_QUERIED, reads=True)


def test_5_a_copy_that_reads_its_source_out_of_order_reads_it_before_it_is_written() -> None:
    assert wrong_within(SEEDS, Executor.ENGINE, Fence.READS_IN_STREAM_ORDER, slots=True)


def test_7_blocks_that_a_sibling_connector_fills_are_rewritten_under_a_store_that_was_not_told() -> None:
    assert wrong_within(SEEDS, Executor.ENGINE, Fence.EVERY_ALLOCATION_COUNTS, slots=True)


def test_8_an_event_recorded_again_too_early_stands_for_the_wrong_work() -> None:
    # Rare: one copy has to be overtaken by a later one, whose event is then taken for its own.
    assert wrong_within(3 * SEEDS, Executor.ENGINE, Fence.EVENTS_STAY_OWNED, slots=True, reads=True)


# --- one down: executor mapped, where no stream orders the worker -------------------------------------------------
def test_6_a_freed_block_that_is_loaded_while_a_step_is_in_flight_is_used_by_both() -> None:
    assert wrong_within(SEEDS, Executor.MAPPED, Fence.FREED_BLOCKS_REST, reads=True)


def test_7_a_guard_that_no_sibling_allocation_raises_lets_a_worker_store_foreign_bytes() -> None:
    assert wrong_within(SEEDS, Executor.MAPPED, Fence.EVERY_ALLOCATION_COUNTS, slots=True)


def test_a_worker_that_does_not_compare_guards_stores_foreign_bytes() -> None:
    assert any(run(seed, Executor.MAPPED, compares_guards=False).wrong_slots for seed in range(SEEDS))
