"""Executor engine in the engine's real scheduler, with a real rank half, KV memory and arena, and a scripted node."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.engines.contract.engine_parts import BLOCK, BLOCKS, ROW, Engine, Step, table
from vllm.v1.request import RequestStatus

from blockyard.connectors.slot_calls import StagedLoad
from blockyard.connectors.vllm import layout
from blockyard.connectors.vllm.kv_pages import KvPages
from blockyard.connectors.vllm.slot_orders import LoadStaged
from blockyard.core.vocabulary import BlockId, Generation, ItemStatus, LoadId, Tier
from blockyard.testing.byte_patterns import header_of
from blockyard.tiers.arena import Arena

SLOTS = 8
PAGE_BYTES = 2 * BLOCK * 64 * 4
ROW_BYTES = PAGE_BYTES * ROW // BLOCK
OK, CORRUPT = ItemStatus.OK, ItemStatus.CORRUPT


class Copying:
    """An engine whose rank has an arena."""

    def __init__(self, engine: Engine, arena: Arena) -> None:
        self.engine, self.arena = engine, arena
        self.slots = engine.node.slots
        self.kv = torch.zeros((BLOCKS, 2, BLOCK, 1, 64))
        self.half = engine.rank._rank
        facts = layout.engine_facts(engine.config, engine.kv_config, engine.rank.settings)
        self.half._copies = KvPages(engine.kv_config, {"layer0": self.kv}).copies(facts, 0)
        self.copies: Any = self.half._copies
        self.copies.take_arena(arena)
        self.attach()

    def attach(self) -> None:
        """The rank attaches, and the engine hears of it."""
        drained = self.copies.drained()
        try:
            while True:
                drained.send(None)
        except StopIteration:
            self.copies.attached(True)

    def write(self, step: Step) -> None:
        """What the kernels of a step do: each block holds its number from then on."""
        for name in step.tokens:
            for block in table(self.engine, name):
                self.kv[block] = block

    def step(self) -> Step:
        """One step, until the rank has ended its copies."""
        step = self.engine.schedule()
        self.write(step)
        self.engine.finish(step)
        while not self.copies._all_ended():
            pass
        return step

    def until(self, holds: Callable[[], Any]) -> None:
        """Step until something is so."""
        deadline = time.monotonic() + 10
        while not holds():
            assert time.monotonic() < deadline, "does not come"
            self.step()

    def page(self, slot: int, place: int) -> set[float]:
        """Numbers in one page of a slot."""
        payload = self.arena.payload(BlockId(slot))[place * PAGE_BYTES : (place + 1) * PAGE_BYTES]
        return set(torch.frombuffer(bytearray(payload.tobytes()), dtype=torch.float32).tolist())

    def stage(self, load: int, *statuses: ItemStatus, number: float = 500.0) -> None:
        """The node has brought rows into its first slots: page p of row r holds ``number + 10 * r + p``."""
        for row in range(len(statuses)):
            payload = self.arena.begin_write(BlockId(row), Generation(90))
            for place in range(ROW // BLOCK):
                page = torch.full((PAGE_BYTES // 4,), number + 10 * row + place)
                payload[place * PAGE_BYTES : (place + 1) * PAGE_BYTES] = page.numpy().view("uint8")
            slot = BlockId(row)
            self.arena.publish(header_of(0, payload, file_id=self.arena.arena_id, slot=slot, generation=Generation(90)))
        count = len(statuses)
        part = StagedLoad(
            LoadId(30), statuses, (Tier.G2,) * count, tuple(map(BlockId, range(count))), (Generation(90),) * count
        )
        self.engine.node.news.append(LoadStaged(load, 1, (part,)))


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(SLOTS, ROW_BYTES) as made:
        yield made


@pytest.fixture
def copying(make_engine: Callable[..., Engine], arena: Arena, request: pytest.FixtureRequest) -> Iterator[Copying]:
    """An idle engine is kept stepping for rows that wait only where a test says how long, in milliseconds."""
    engine = make_engine(extra={"blockyard.executor": "engine", "blockyard.hold_ms": getattr(request, "param", 0)})
    made = Copying(engine, arena)
    engine.node.holds = (0,)
    yield made
    made.copies.close()


def test_rows_are_copied_in_the_step_that_completes_them_and_committed_with_the_next(copying: Copying) -> None:
    engine = copying.engine
    copying.slots.free = [4, 6, 2]
    engine.request("busy", 5, seed=9, output=60)
    copying.until(lambda: copying.slots.grants)
    engine.request("a", 3 * ROW + 5, output=3)
    step = copying.step()
    assert step.tokens["a"] == 3 * ROW + 5
    assert [row.slot for order in step.plan.copies.stores for row in order.rows] == [4, 6, 2]
    blocks = table(engine, "a")
    copying.until(lambda: copying.slots.committed)
    ((slots, rows, shards),) = copying.slots.committed
    assert (slots, rows.first_row, rows.count, shards) == ([4, 6, 2], 0, 3, 1)
    for row, slot in enumerate(slots):
        for place in range(4):
            assert copying.page(slot, place) == {float(blocks[4 * row + place])}
    engine.check_nothing_is_left()
    assert {rows.first_row for rows in engine.node.registered} == {0}


@pytest.mark.parametrize("copying", [60_000], indirect=True)
def test_a_row_waits_for_a_slot_and_is_stored_from_the_blocks_of_a_request_that_is_gone(copying: Copying) -> None:
    copying.step()
    copying.engine.request("a", ROW + 5, output=1)
    copying.step()
    assert copying.slots.committed == []
    assert copying.engine.connector.has_pending_push_work(), "the engine goes on stepping for it"
    copying.slots.free = [3]
    copying.until(lambda: copying.slots.committed)
    assert [slots for slots, *_ in copying.slots.committed] == [[3]]
    copying.engine.check_nothing_is_left()


def test_blocks_that_others_got_meanwhile_are_not_stored(copying: Copying) -> None:
    engine = copying.engine
    copying.step()
    engine.request("a", ROW + 5, output=1)
    copying.step()
    for number in range(2):
        engine.request(f"b{number}", 1_000, seed=40 + number, output=1, parameters={"blockyard": "off"})
    copying.until(lambda: not engine.scheduler.requests)
    copying.slots.free = [3]
    engine.request("c", 5, seed=9, output=600, parameters={"blockyard": "off"})
    copying.until(lambda: not engine.half._desk.stores._waiting)
    copying.until(lambda: not engine.scheduler.requests)
    assert copying.slots.committed == []
    engine.check_nothing_is_left()


def test_a_hit_is_copied_by_the_rank_before_the_request_is_scheduled(copying: Copying) -> None:
    engine = copying.engine
    copying.step()
    engine.node.holds = (2,)
    engine.request("a", 3 * ROW + 5)
    assert copying.step().tokens == {}
    ((load, (rows,)),) = copying.slots.staging.items()
    assert (rows.first_row, rows.count) == (0, 2)
    assert copying.step().tokens == {}, "not staged yet"
    copying.stage(load, OK, OK)
    step = copying.step()
    assert [order.rows[0].pages for order in step.plan.copies.loads] == [tuple(table(engine, "a")[:4])]
    held = [set(self_kv.flatten().tolist()) for self_kv in copying.kv[table(engine, "a")[:8]]]
    assert held == [{500.0 + 10 * row + place} for row in range(2) for place in range(4)]
    assert copying.slots.closed == [30]
    copying.until(lambda: "a" not in engine.scheduler.requests or engine.scheduler.requests["a"].num_computed_tokens)
    engine.check_nothing_is_left()
    assert engine.node.decisions[0].loaded_tokens == 2 * ROW


def test_what_was_damaged_is_computed(copying: Copying) -> None:
    engine = copying.engine
    copying.step()
    engine.node.holds = (2,)
    engine.request("a", 3 * ROW + 5)
    copying.step()
    copying.stage(next(iter(copying.slots.staging)), OK, CORRUPT)
    tokens = []
    while engine.scheduler.requests:
        tokens.append(copying.step().tokens.get("a", 0))
    assert next(count for count in tokens if count) == 2 * ROW + 5
    engine.check_nothing_is_left()


def test_a_request_that_is_aborted_while_it_is_loaded_gives_its_blocks_back_when_the_rank_is_done(
    copying: Copying,
) -> None:
    engine = copying.engine
    copying.step()
    engine.node.holds = (2,)
    engine.request("a", 3 * ROW + 5)
    copying.step()
    load = next(iter(copying.slots.staging))
    engine.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    copying.step()
    assert engine.free < engine.free_at_start
    copying.stage(load, OK, OK)
    copying.until(lambda: engine.free == engine.free_at_start)
    assert copying.slots.closed == [30]
    engine.check_nothing_is_left()


def test_what_the_node_gave_before_the_rank_attached_anew_is_not_used(copying: Copying) -> None:
    engine = copying.engine
    copying.slots.free = [4, 6]
    engine.request("busy", 5, seed=9, output=60)
    copying.until(lambda: copying.slots.grants)
    copying.attach()
    engine.request("a", 2 * ROW + 5, output=4)
    step = engine.schedule()
    assert [row.slot for order in step.plan.copies.stores for row in order.rows] == [4, 6]
    engine.finish(step)
    assert copying.arena.read(BlockId(4)).generation == 0, "the rank refused"
    assert (copying.slots.committed, copying.slots.aborted) == ([], [4, 6])
    engine.check_nothing_is_left()
