"""What bites: nodes that go away, faults of ours, ids and sessions used again, drafts, and roles of the engine."""

from collections import deque
from collections.abc import Callable

import pytest
from tests.engines.contract.engine_parts import BLOCK, HASH, ROW, Engine
from vllm import SamplingParams
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.request import Request, RequestStatus

from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.vllm.node_calls import LoadEnded
from blockyard.core.vocabulary import Availability, ItemStatus, Tier

Make = Callable[..., Engine]
G2 = Availability.G2


def rows_registered(engine: Engine) -> list[tuple[int, int]]:
    return sorted((rows.first_row, rows.count) for rows in engine.node.registered)


def at(engine: Engine, seconds: float) -> None:
    now = engine.half._clock()
    engine.half._clock = lambda: now + seconds


# --- a node that goes away ----------------------------------------------------------------------------------------
def test_a_load_whose_node_went_away_is_waited_for_while_the_node_may_come_back(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW + 5)
    engine.step()
    (number,) = engine.node.loads
    engine.node.goes()
    at(engine, 34.0)
    assert engine.step().tokens == {}, "a write may still come"
    engine.node.comes_back()
    at(engine, 600.0)
    assert engine.step().tokens == {}, "a node that is there ends its loads itself"
    engine.node.end_load(number)
    engine.step()
    assert engine.step().tokens == {"a": 5}
    engine.check_nothing_is_left()


def test_a_load_whose_node_never_comes_back_is_computed_under_new_guards(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW + 5)
    engine.step()
    ((number, (_, (rows,))),) = engine.node.loads.items()
    engine.node.goes()
    at(engine, 36.0)
    guards = engine.half._guards
    step = engine.schedule()
    assert step.plan.received == {"a"}
    assert step.plan.invalid == rows.blocks()
    assert (guards.values(rows.pages) == rows.guards + 1).all(), "before anybody is told"
    engine.finish(step)
    assert engine.step().tokens == {"a": 2 * ROW + 5}
    engine.check_nothing_is_left()
    assert not rows_registered(engine), "a late write may be in these blocks"
    assert all_registered(engine, seed=20) < 4 * 15, "whoever has them now"
    late = LoadResult((ItemStatus.OK,) * 2, (Tier.G2,) * 2)
    engine.node.news.append(LoadEnded(number, (late,), 40.0))
    assert all_registered(engine, seed=60) == 4 * 15, "the node said that nothing can follow"


def all_registered(engine: Engine, seed: int) -> int:
    """Rows registered of requests that need every block of the engine, one after the other."""
    engine.node.holds, before = (0,), sum(rows.count for rows in engine.node.registered)
    for number in range(4):
        engine.request(f"of {seed + number}", 15 * ROW, seed=seed + number)
        engine.run()
    return sum(rows.count for rows in engine.node.registered) - before


def test_an_aborted_load_whose_node_never_comes_back_gives_its_blocks_back(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW + 5)
    engine.step()
    engine.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    engine.node.goes()
    engine.step()
    assert engine.free < engine.free_at_start
    at(engine, 36.0)
    engine.check_nothing_is_left()


def test_after_a_fault_of_ours_guards_are_raised_before_the_ends_of_loads_are_told(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW + 5)
    engine.step()
    ((_, (_, (rows,))),) = engine.node.loads.items()
    engine.half._tables = None
    step = engine.schedule()
    assert step.plan.received == {"a"}
    guards = engine.half._guards
    assert (guards.values(rows.pages) > rows.guards).all()
    engine.finish(step)
    engine.run()
    assert engine.free == engine.free_at_start


def test_a_fault_of_the_rank_leaves_the_engine_running(engine: Engine) -> None:
    engine.node.holds = (0,)

    def broken(*_: object) -> None:
        raise ValueError("a fault of ours")

    engine.rank._rank.step_begins = engine.rank._rank.step_ended = broken
    engine.request("a", 2 * ROW + 5)
    assert engine.step().tokens == {"a": 2 * ROW + 5}
    engine.step()
    at(engine, 5.0)
    engine.run()
    assert engine.free == engine.free_at_start
    assert not rows_registered(engine), "nobody said that the step was complete"


def test_a_reset_while_a_load_runs_fails_its_rows(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW + 5)
    engine.step()
    ((number, (_, (rows,))),) = engine.node.loads.items()
    engine.connector.reset_cache()
    guards = engine.half._guards
    assert (guards.values(rows.pages) > rows.guards).all()
    engine.node.end_load(number, bad_row=0)
    engine.step()
    assert engine.step().tokens == {"a": 2 * ROW + 5}
    engine.check_nothing_is_left()


# --- used again ---------------------------------------------------------------------------------------------------
def test_the_answer_to_a_request_that_is_gone_is_none_for_the_next_one_of_its_name(engine: Engine) -> None:
    engine.request("a", 2 * ROW + 5)
    engine.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    engine.request("a", 2 * ROW + 5, seed=9)
    (_, first, rows), (_, second, _) = engine.node.lookups
    assert first != second
    engine.node.answer("a", first, ((G2,) * rows,))
    assert engine.step().tokens == {}
    assert not engine.node.loads
    engine.node.answer("a", second, ((Availability.MISS,) * rows,))
    assert engine.step().tokens == {"a": 2 * ROW + 5}
    engine.check_nothing_is_left()


def test_a_session_that_goes_on_registers_the_rows_of_its_whole_text(engine: Engine) -> None:
    engine.node.holds = (0,)
    request = engine.request("a", ROW + 3, output=1)
    request.resumable, request.streaming_queue = True, deque()
    engine.step()
    assert request.status == RequestStatus.WAITING_FOR_STREAMING_REQ
    engine.scheduler.add_request(more(ROW + 2, resumable=True))
    engine.step()
    engine.scheduler.add_request(more(0, resumable=False))
    engine.run()
    named = {rows.first_row + index for rows in engine.node.registered for index in range(rows.count)}
    assert named == {0, 1}
    last = max(engine.node.registered, key=lambda rows: rows.first_row)
    assert last.hashes[-1] == request.block_hashes[2 * ROW // BLOCK - 1], "by the hash of the text as it went on"
    engine.check_nothing_is_left()


def more(tokens: int, *, resumable: bool) -> Request:
    sampling = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
    sampling.update_from_generation_config({}, 2)
    return Request(
        request_id="a",
        prompt_token_ids=[300 + index % 100 for index in range(tokens)] or [7],
        sampling_params=sampling,
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK, HASH),
        resumable=resumable,
    )


# --- drafts -------------------------------------------------------------------------------------------------------
def test_a_row_counts_when_its_tokens_are_accepted_not_when_they_are_drafted(engine: Engine) -> None:
    engine.node.holds = (0,)
    engine.scheduler.num_spec_tokens = 3
    request = engine.request("a", ROW - 2, output=20)
    engine.step()
    assert request.num_tokens == ROW - 1
    request.spec_token_ids = [9, 9, 9]
    step = engine.step()
    assert step.tokens == {"a": 4}, "drafts up to beyond the end of the row"
    assert request.num_tokens == ROW, "and all of them were rejected"
    assert not rows_registered(engine)
    request.spec_token_ids = [9, 9, 9]
    engine.step()
    assert rows_registered(engine) == [(0, 1)], "the step that computed its last accepted token again"
    engine.run()
    engine.check_nothing_is_left()


# --- roles and requests -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("role", "loads", "stores"), [("kv_producer", False, True), ("kv_consumer", True, False)])
def test_a_producer_only_stores_and_a_consumer_only_loads(
    make_engine: Make, role: str, loads: bool, stores: bool
) -> None:
    engine = make_engine(connector={"kv_role": role})
    engine.node.holds = (1,)
    engine.request("a", 2 * ROW + 5)
    engine.step()
    assert bool(engine.node.loads) is bool(engine.node.lookups) is loads
    for number in list(engine.node.loads):
        engine.node.end_load(number)
    engine.run()
    assert bool(engine.node.registered) is stores
    assert engine.node.decisions[0].reason == ("not_stored" if loads else "switched_off")
    engine.check_nothing_is_left()


def test_a_request_that_needs_each_token_of_its_prompt_is_computed_and_stored(engine: Engine) -> None:
    engine.node.holds = (2,)
    request = engine.request("a", 2 * ROW + 5)
    request.skip_reading_prefix_cache = True
    engine.half._requests.clear()
    engine.half.on_new_request(request)
    engine.node.news.clear()
    assert engine.step().tokens == {"a": 2 * ROW + 5}
    assert engine.node.decisions[0].reason == "request_opted_out"
    engine.run()
    assert rows_registered(engine) == [(0, 2)]
