"""The connector in the engine's real scheduler: lookups, loads, stores, and what is left behind."""

from collections.abc import Callable

import numpy as np
from tests.engines.contract.engine_parts import BLOCK, ROW, Engine, table
from vllm.v1.request import RequestStatus

from blockyard.connectors.vllm.rows import Rows
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import Availability

Make = Callable[..., Engine]


def loaded(engine: Engine) -> tuple[int, tuple[Rows, ...]]:
    ((number, (_, rows)),) = engine.node.loads.items()
    return number, rows


def test_a_request_waits_for_its_lookup_and_is_computed_on_a_miss(engine: Engine) -> None:
    engine.request("a", 3 * ROW + 5)
    assert engine.step().tokens == {}
    assert engine.node.lookups == [("a", 1, 3)]
    engine.node.answer("a", 1, ((Availability.MISS,) * 3,))
    assert engine.step().tokens == {"a": 3 * ROW + 5}
    assert not engine.node.reserved
    engine.check_nothing_is_left()


def test_a_lookup_that_comes_too_late_is_a_miss(make_engine: Make) -> None:
    engine = make_engine(extra={"blockyard.lookup_wait_ms": 1_000})
    engine.request("a", ROW + 5)
    assert engine.step().tokens == {}
    now = engine.half._clock()
    engine.half._clock = lambda: now + 1.0
    assert engine.step().tokens == {"a": ROW + 5}
    assert engine.node.decisions[0].reason == "lookup_late"


def test_a_hit_is_loaded_before_the_request_is_scheduled(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 3 * ROW + 5)
    step = engine.step()
    assert step.tokens == {}
    number, (rows,) = loaded(engine)
    assert (rows.first_row, rows.count, len(rows.pages)) == (0, 2, 8)
    assert rows.pages.tolist() == table(engine, "a")[:8]
    assert engine.node.reserved == ["a"]
    assert engine.step().tokens == {}, "the load has not ended"
    engine.node.end_load(number)
    engine.step()
    assert engine.node.released == ["a"]
    assert engine.step().tokens == {"a": ROW + 5}
    engine.check_nothing_is_left()
    assert engine.node.decisions[0].loaded_tokens == 2 * ROW


def test_new_blocks_are_deregistered_before_anything_is_loaded_into_them(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW + 5)
    engine.step()
    assert engine.node.orders == ["deregister", "load"]
    _, (rows,) = loaded(engine)
    assert rows.blocks() <= set(engine.node.deregistered)
    assert rows.guards.tolist() == [1] * 8, "raised once, and named by the load"


def test_rows_are_registered_when_their_step_has_been_reported(engine: Engine) -> None:
    engine.node.holds = (0,)
    engine.request("a", 2 * ROW + 5)
    step = engine.schedule()
    assert step.plan.step
    assert not engine.node.registered
    engine.finish(step)
    (rows,) = engine.node.registered
    assert (rows.first_row, rows.count) == (0, 2)
    assert rows.pages.tolist() == table(engine, "a")[:8]
    assert rows.guards.tolist() == [1] * 8


def test_whatever_was_ordered_has_begun_when_the_engine_computes_or_rests(engine: Engine) -> None:
    engine.node.holds = (0,)
    for name, seed, output in (("a", 0, 1), ("b", 40, 3)):
        engine.request(name, 2 * ROW + 5, seed=seed, output=output)
    orders = engine.node.orders
    while engine.scheduler.has_requests():
        step = engine.schedule()
        assert engine.node.flushed == len(orders), "the engine computes"
        engine.finish(step)
    assert orders.count("register") == 2
    assert engine.node.flushed == len(orders), "the engine rests"


def test_rows_of_the_last_request_begin_to_be_announced_when_it_is_aborted(engine: Engine) -> None:
    engine.node.holds = (0,)
    engine.request("a", 2 * ROW + 5, output=9)
    engine.step()
    assert engine.node.flushed < len(engine.node.orders) == 2
    engine.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    assert engine.node.flushed == 2


def test_rows_that_fill_up_while_decoding_are_registered_too(engine: Engine) -> None:
    engine.node.holds = (0,)
    engine.request("a", ROW - 2, output=6)
    for _ in range(4):
        engine.step()
    assert [rows.count for rows in engine.node.registered] == [1]


def test_chunks_of_a_prompt_register_each_row_once(make_engine: Make) -> None:
    engine = make_engine(batch_tokens=ROW + BLOCK)
    engine.node.holds = (0,)
    engine.request("a", 4 * ROW)
    engine.run()
    rows = [rows.first_row + index for rows in engine.node.registered for index in range(rows.count)]
    assert rows == [0, 1, 2, 3]


def test_a_partial_failure_keeps_the_good_rows_and_computes_the_rest(engine: Engine) -> None:
    engine.node.holds = (3,)
    request = engine.request("a", 4 * ROW)
    engine.step()
    number, _ = loaded(engine)
    engine.node.end_load(number, bad_row=1)
    engine.step()
    step = engine.schedule()
    assert step.tokens == {"a": 3 * ROW}
    engine.finish(step)
    assert request.num_preemptions == 0
    firsts = sorted((rows.first_row, rows.count) for rows in engine.node.registered)
    assert firsts == [(0, 1), (1, 3)]
    engine.check_nothing_is_left()


def test_a_load_that_brings_nothing_is_computed_and_not_asked_for_again(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW + 5)
    engine.step()
    number, _ = loaded(engine)
    engine.node.end_load(number, bad_row=0)
    engine.step()
    assert engine.step().tokens == {"a": 2 * ROW + 5}
    assert not engine.node.loads
    engine.check_nothing_is_left()


def test_an_aborted_request_keeps_its_blocks_until_its_load_has_ended(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW + 5)
    engine.step()
    number, _ = loaded(engine)
    engine.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    engine.step()
    assert engine.free < engine.free_at_start, "a write may still come"
    assert engine.connector.has_pending_push_work()
    engine.node.end_load(number)
    engine.step()
    assert engine.free == engine.free_at_start
    engine.check_nothing_is_left()


def test_a_request_aborted_between_the_end_of_its_load_and_the_echo_is_freed_once(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW + 5)
    engine.step()
    number, _ = loaded(engine)
    engine.node.end_load(number)
    step = engine.schedule()
    engine.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    engine.finish(step)
    engine.check_nothing_is_left()


def test_a_hit_of_the_whole_prompt_computes_its_last_token_again(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW)
    engine.step()
    number, _ = loaded(engine)
    engine.node.end_load(number)
    engine.step()
    assert engine.step().tokens == {"a": 1}
    rows = sorted((rows.first_row, rows.count) for rows in engine.node.registered)
    assert rows == [(0, 1), (1, 1)], "the rewritten row is registered after its step"


def test_the_first_row_leaves_out_what_the_engine_holds(engine: Engine) -> None:
    engine.node.holds = (0,)
    engine.request("a", ROW + 2 * BLOCK + 1)  # leaves a row and two blocks in the engine's own cache
    engine.run()
    engine.node.holds = (3,)
    engine.request("b", 3 * ROW + 5)
    engine.step()
    number, (rows,) = loaded(engine)
    assert rows.first_row == 1
    assert rows.pages[:2].tolist() == [NO_PAGE, NO_PAGE]
    assert NO_PAGE not in rows.pages[2:].tolist()
    assert rows.pages[2:].tolist() == table(engine, "b")[6:12]
    engine.node.end_load(number)
    engine.step()
    engine.step()
    assert (1, 2) in {(rows.first_row, rows.count) for rows in engine.node.registered}


def test_a_finished_request_is_held_until_its_stores_are_settled(engine: Engine) -> None:
    engine.node.holds, engine.node.settles = (0,), False
    engine.request("a", ROW + 5, output=1)
    engine.step()
    assert "a" in engine.scheduler.requests
    assert engine.free < engine.free_at_start
    engine.step()
    assert engine.free < engine.free_at_start
    engine.node.settle()
    engine.step()
    assert engine.free == engine.free_at_start
    engine.check_nothing_is_left()


def test_a_request_is_not_held_longer_than_allowed(make_engine: Make) -> None:
    engine = make_engine(extra={"blockyard.hold_ms": 1})
    engine.node.holds, engine.node.settles = (0,), False
    engine.request("a", ROW + 5, output=1)
    engine.step()
    now = engine.half._clock()
    engine.half._clock = lambda: now + 1.0
    engine.check_nothing_is_left()


def test_preempted_requests_ask_again_and_their_rows_are_dropped(make_engine: Make) -> None:
    engine = make_engine(blocks=20)
    engine.node.holds = (0,)
    engine.request("a", 2 * ROW, output=60)
    engine.request("b", 2 * ROW, seed=7, output=60)
    for _ in range(300):
        engine.step()
        if not engine.scheduler.has_requests():
            break
    assert {attempt for _, attempt, _ in engine.node.lookups} > {1}
    engine.check_nothing_is_left()


def test_rows_of_blocks_that_were_reused_before_the_step_ended_are_not_registered(engine: Engine) -> None:
    engine.node.holds = (0,)
    engine.request("a", 2 * ROW)
    step = engine.schedule()
    engine.half._guards.raise_guards(table(engine, "a")[:1])
    engine.finish(step)
    (rows,) = engine.node.registered
    assert (rows.first_row, rows.count) == (1, 1)


def test_guards_of_all_blocks_that_a_step_writes_first_are_raised(engine: Engine) -> None:
    engine.node.holds = (0,)
    engine.request("a", ROW, output=40)
    for _ in range(30):
        step = engine.schedule()
        blocks = np.array(table(engine, "a"), np.int64)
        assert (engine.half._guards.values(blocks) > 0).all()
        assert set(blocks.tolist()) <= set(engine.node.deregistered)
        engine.finish(step)


def test_a_reset_raises_all_guards_and_tells_the_node(engine: Engine) -> None:
    assert engine.connector.reset_cache() is True
    assert engine.node.resets == 1
    assert engine.half._guards.guard(5) == 1


def test_loads_that_are_switched_off_are_misses(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.node.switch_loading(loading=False)
    engine.request("a", 2 * ROW + 5)
    assert engine.step().tokens == {"a": 2 * ROW + 5}
    assert engine.node.decisions[0].reason == "switched_off"


def test_a_fault_of_ours_leaves_the_engine_running(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW + 5)
    engine.step()

    def broken(*_: object) -> None:
        raise ValueError("a fault of ours")

    engine.half._take_news = broken
    engine.run()
    assert engine.node.closed
    assert engine.free == engine.free_at_start
