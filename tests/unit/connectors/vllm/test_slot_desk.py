"""Scheduler's side of copies by the ranks: which slots are given to which rows, and what becomes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.slot_calls import StagedLoad, StoreGrant
from blockyard.connectors.vllm.block_tables import BlockTable
from blockyard.connectors.vllm.rows import Rows
from blockyard.connectors.vllm.slot_desk import SlotDesk
from blockyard.connectors.vllm.slot_orders import LoadStaged, SlotsGranted
from blockyard.connectors.vllm.slot_stores import SlotStores
from blockyard.connectors.vllm.staged_copies import StagedCopies
from blockyard.connectors.vllm.step_plan import CopyOrder, CopyPlan, StepReport
from blockyard.connectors.vllm.tracked_request import EngineFacts, TrackedRequest
from blockyard.core.kv_groups import KvGroup
from blockyard.core.vocabulary import BlockId, EngineBlockId, Generation, GroupId, ItemStatus, LoadId, Tier

if TYPE_CHECKING:
    from blockyard.connectors.vllm.node_calls import LoadEnded

BLOCKS = 64
OK, CORRUPT, SKIPPED, UNKNOWN = ItemStatus.OK, ItemStatus.CORRUPT, ItemStatus.SKIPPED, ItemStatus.UNKNOWN


@dataclass
class Orders:
    """What was ordered."""

    reserved: list[int] = field(default_factory=list)
    committed: list[tuple[int, int, list[BlockId], Rows, int]] = field(default_factory=list)
    aborted: list[tuple[int, int, list[BlockId]]] = field(default_factory=list)
    staged: list[int] = field(default_factory=list)
    closed: list[LoadId] = field(default_factory=list)

    def reserve(self, count: int) -> None:
        self.reserved.append(count)

    def commit(self, life: int, grant: int, slots: Sequence[BlockId], rows: Rows, shards: int) -> None:
        self.committed.append((life, grant, list(slots), rows, shards))

    def abort(self, life: int, grant: int, slots: Sequence[BlockId]) -> None:
        self.aborted.append((life, grant, list(slots)))

    def stage(self, load: int, request: str, rows: Sequence[Rows], ttl_seconds: float) -> None:
        self.staged.append(load)

    def close_loads(self, life: int, loads: Sequence[LoadId]) -> None:
        self.closed += loads


@dataclass
class Request:
    """A request of the engine."""

    request_id: str = "r"
    num_preemptions: int = 0
    kv_transfer_params: Mapping[str, Any] | None = None
    num_tokens: int = 512

    @property
    def block_hashes(self) -> list[bytes]:
        return [bytes([index]) for index in range(32)]


class Desk:
    """A desk of two ranks, whose rows have two blocks."""

    def __init__(self, *, ranks: int = 2, replicated: bool = False) -> None:
        group = KvGroup(engine_block_tokens=16, replicated=replicated)
        facts = EngineFacts(groups=(group,), block_tokens=32, hash_tokens=16, row_bytes=1, ranks=ranks)
        self.orders, self.guards, self.now = Orders(), EngineGuards(BLOCKS), 0.0
        self.stored = self.skipped = 0
        self.ended: list[LoadEnded] = []
        self.stores = SlotStores(facts, self.guards, self.orders, self._stored, self._skipped, 0.5, lambda: self.now)
        loads = StagedCopies(self.orders, lambda: self.now)
        self.desk = SlotDesk(ranks, self.stores, loads, self.ended.append)
        self.ranks = ranks

    def _stored(self, rows: int) -> None:
        self.stored += rows

    def _skipped(self, rows: int) -> None:
        self.skipped += rows

    def attach(self, *attachments: int) -> None:
        self.desk.reported(StepReport(attachments=dict(enumerate(attachments))))

    def grant(self, *slots: int, grant: int = 1, life: int = 1) -> None:
        granted = StoreGrant(grant, tuple(map(BlockId, slots)), (Generation(9),) * len(slots))
        self.desk.heard(SlotsGranted(life, granted))

    def ready(self, *slots: int) -> None:
        """All ranks are attached, and these slots granted."""
        self.attach(*(1,) * self.ranks)
        self.desk.plan()
        self.grant(*slots)

    def complete(self, *blocks: int) -> None:
        """A request completes rows in these blocks."""
        table = BlockTable(2)
        table.append(np.array(blocks, np.int64), self.guards.values(np.array(blocks, np.int64)))
        self.stores.complete(TrackedRequest(Request(), opted_out=False), table, 0, 0, len(blocks) // 2)

    def end(self, order: CopyOrder, *statuses: ItemStatus, rank: int | None = None) -> None:
        """A rank, or each, has ended an order."""
        for number in range(self.ranks) if rank is None else (rank,):
            report = StepReport()
            report.copied(number, order.number, statuses)
            self.desk.reported(report)


def only(plan: CopyPlan) -> CopyOrder:
    (order,) = plan.stores or plan.loads
    return order


# --- stores -------------------------------------------------------------------------------------------------------
def test_nothing_is_asked_for_before_every_rank_is_attached() -> None:
    desk = Desk()
    desk.desk.plan()
    desk.attach(1)
    desk.desk.plan()
    assert desk.orders.reserved == []
    desk.desk.reported(StepReport(attachments={1: 1}))
    assert desk.desk.plan().attachments == (1, 1)
    assert desk.orders.reserved == [64]
    desk.desk.plan()
    assert desk.orders.reserved == [64], "one question at a time"


def test_a_row_is_committed_with_all_shards_when_every_rank_has_copied_it() -> None:
    desk = Desk()
    desk.ready(3, 4)
    desk.complete(10, 11, 12, 13)
    order = only(desk.desk.plan())
    assert [(row.pages, row.slot, row.generation) for row in order.rows] == [((10, 11), 3, 9), ((12, 13), 4, 9)]
    assert desk.desk.busy
    desk.end(order, OK, OK, rank=0)
    assert desk.orders.committed == []
    desk.end(order, OK, OK, rank=1)
    ((life, grant, slots, rows, shards),) = desk.orders.committed
    assert (life, grant, slots, rows.first_row, rows.hashes, shards) == (1, 1, [3, 4], 0, [b"\x01", b"\x03"], 0b11)
    assert (desk.stored, desk.skipped, desk.desk.busy) == (2, 0, False)


def test_of_rows_that_are_the_same_in_all_ranks_there_is_one_shard() -> None:
    desk = Desk(replicated=True)
    desk.ready(3)
    desk.complete(10, 11)
    desk.end(only(desk.desk.plan()), OK)
    assert [shards for *_, shards in desk.orders.committed] == [1]


def test_a_slot_that_one_rank_did_not_write_goes_back_when_no_rank_writes_it() -> None:
    desk = Desk()
    desk.ready(3, 4, 5)
    desk.complete(10, 11, 12, 13, 14, 15)
    order = only(desk.desk.plan())
    desk.end(order, OK, SKIPPED, OK, rank=0)
    assert desk.orders.aborted == []
    desk.end(order, OK, OK, OK, rank=1)
    assert desk.orders.aborted == [(1, 1, [4])]
    parts = [(slots, rows.first_row, rows.hashes) for _, _, slots, rows, _ in desk.orders.committed]
    assert parts == [([3], 0, [b"\x01"]), ([5], 2, [b"\x03", b"\x05"])]
    assert (desk.stored, desk.skipped) == (2, 1)


def test_rows_wait_for_slots_while_their_blocks_are_whole() -> None:
    desk = Desk()
    desk.complete(10, 11, 12, 13, 14, 15)
    assert desk.desk.plan().stores == ()
    desk.ready(3)
    assert [row.pages for row in only(desk.desk.plan()).rows] == [(10, 11)]
    desk.guards.raise_guards([EngineBlockId(13)])
    desk.now = 1.0
    desk.desk.plan()
    desk.grant(4, 5, grant=2)
    assert [(row.pages, row.slot) for row in only(desk.desk.plan()).rows] == [((14, 15), 4)]
    assert desk.skipped == 1


def test_an_idle_engine_is_kept_stepping_for_rows_that_wait_but_not_for_long() -> None:
    desk = Desk()
    desk.complete(10, 11)
    assert not desk.desk.busy, "no rank is attached"
    desk.attach(1, 1)
    assert desk.desk.busy
    desk.now = 0.6
    assert not desk.desk.busy


def test_a_rank_that_attaches_anew_makes_slots_of_before_void() -> None:
    desk = Desk()
    desk.ready(3, 4, 5)
    desk.complete(10, 11)
    order = only(desk.desk.plan())
    desk.desk.reported(StepReport(attachments={1: 2}))
    assert desk.orders.aborted == [(1, 1, [4, 5])]
    desk.complete(20, 21)
    assert desk.desk.plan().stores == ()
    desk.end(order, OK)
    assert desk.orders.committed == []
    assert desk.orders.aborted[1:] == [(1, 1, [3])]


def test_slots_asked_for_before_a_rank_attached_anew_are_given_back() -> None:
    desk = Desk()
    desk.attach(1, 1)
    desk.desk.plan()
    desk.desk.reported(StepReport(attachments={0: 2}))
    desk.grant(3, 4)
    assert desk.orders.aborted == [(1, 1, [3, 4])]
    desk.complete(10, 11)
    assert desk.desk.plan().stores == ()
    assert desk.orders.reserved == [64, 64]


def test_without_a_connection_nothing_is_ordered_and_old_slots_are_not_used_over_the_next() -> None:
    desk = Desk()
    desk.ready(3)
    desk.desk.connected(connected=False)
    desk.complete(10, 11)
    assert desk.desk.plan().stores == ()
    desk.desk.connected(connected=True)
    desk.now = 1.0
    assert desk.desk.plan().stores == ()
    desk.grant(6, grant=1, life=2)
    desk.end(only(desk.desk.plan()), OK)
    assert [(life, slots) for life, _, slots, *_ in desk.orders.committed] == [(2, [6])]


def test_slots_that_are_not_used_soon_go_back_and_others_are_asked_for() -> None:
    desk = Desk()
    desk.ready(3, 4)
    desk.now = 1.9
    desk.desk.plan()
    assert desk.orders.aborted == []
    desk.now = 2.0
    desk.desk.plan()
    assert desk.orders.aborted == [(1, 1, [3, 4])]
    desk.grant(grant=2)
    desk.now = 2.1
    desk.desk.plan()
    assert desk.orders.reserved == [64, 62, 64]


def test_an_idle_engine_holds_no_slots_and_steps_until_it_knows_of_all() -> None:
    desk = Desk()
    desk.ready(3, 4)
    desk.stores.rest()
    assert desk.orders.aborted == [(1, 1, [3, 4])]
    desk.now = 1.0
    desk.desk.plan()
    assert desk.desk.busy, "an answer is awaited"
    desk.grant(5, grant=2)
    assert desk.desk.plan(idle=True).stores == ()
    assert desk.orders.aborted[1:] == [(1, 2, [5])]
    assert not desk.desk.busy
    reserved = len(desk.orders.reserved)
    desk.now = 2.0
    desk.desk.plan(idle=True)
    assert len(desk.orders.reserved) == reserved


def test_every_allocation_travels_once_with_whom_it_is_for() -> None:
    desk = Desk()
    desk.desk.reused(np.array([1, 2]), by_others=False)
    desk.desk.reused(np.array([3]), by_others=True)
    plan = desk.desk.plan()
    assert (plan.ours, plan.others) == ((1, 2), (3,))
    assert desk.desk.plan() == CopyPlan(attachments=(0, 0))


def test_after_a_fault_ranks_are_told_to_stop_and_nothing_waits() -> None:
    desk = Desk()
    desk.ready(3)
    desk.complete(10, 11)
    desk.desk.plan()
    assert desk.desk.give_up() == CopyPlan(stop=True)
    assert not desk.desk.busy


# --- loads --------------------------------------------------------------------------------------------------------
def rows(count: int, *, group: int = 0) -> Rows:
    pages = [EngineBlockId(20 + index) for index in range(2 * count)]
    hashes = [bytes([index]) for index in range(count)]
    return Rows(GroupId(group), 0, hashes, np.array(pages, np.int64), np.zeros(len(pages), np.uint64))


def staged(load: int, *statuses: ItemStatus) -> StagedLoad:
    count = len(statuses)
    slots, generations = tuple(map(BlockId, range(count))), (Generation(4),) * count
    return StagedLoad(LoadId(load), statuses, (Tier.G3,) * count, slots, generations)


def test_orders_of_loads_and_stores_name_pages_in_plain_numbers() -> None:
    """They travel to other processes with every step, and are looked up one by one there."""
    desk = Desk()
    desk.ready(3)
    desk.complete(10, 11)
    desk.desk.load(7, "r", [rows(1)], 5.0)
    desk.desk.heard(LoadStaged(7, 1, (staged(30, OK),)))
    plan = desk.desk.plan()
    copies = [copy for order in (*plan.stores, *plan.loads) for copy in order.rows]
    assert [[type(page) for page in copy.pages] for copy in copies] == [[int, int]] * 2


def begun(desk: Desk, *parts: Rows) -> None:
    desk.attach(*(1,) * desk.ranks)
    desk.desk.load(7, "r", parts, 5.0)
    assert desk.orders.staged == [7]


def test_a_load_ends_when_every_rank_has_copied_it_and_its_pins_end_then() -> None:
    desk = Desk()
    begun(desk, rows(2))
    assert desk.desk.plan().loads == ()
    desk.now = 0.2
    desk.desk.heard(LoadStaged(7, 1, (staged(30, OK, OK),)))
    order = only(desk.desk.plan())
    assert [(row.pages, row.slot, row.generation) for row in order.rows] == [((20, 21), 0, 4), ((22, 23), 1, 4)]
    desk.end(order, OK, OK, rank=1)
    assert (desk.ended, desk.orders.closed) == ([], [])
    assert not desk.desk.drop_load(7), "ranks copy"
    desk.now = 0.3
    desk.end(order, OK, OK, rank=0)
    (ended,) = desk.ended
    assert (ended.load, ended.results[0].statuses, ended.results[0].sources) == (7, (OK, OK), (Tier.G3, Tier.G3))
    assert ended.seconds == 0.3
    assert desk.orders.closed == [30]


def test_what_cannot_be_used_is_not_copied_and_what_a_rank_could_not_copy_is_not_used() -> None:
    desk = Desk()
    begun(desk, rows(4))
    desk.desk.heard(LoadStaged(7, 1, (staged(30, OK, OK, CORRUPT, OK),)))
    order = only(desk.desk.plan())
    assert len(order.rows) == 2
    desk.end(order, OK, OK, rank=0)
    desk.end(order, OK, ItemStatus.STALE, rank=1)
    assert desk.ended[0].results[0].statuses == (OK, ItemStatus.STALE, CORRUPT, OK)


def test_a_load_of_which_nothing_came_ends_without_the_ranks() -> None:
    desk = Desk()
    begun(desk, rows(2))
    desk.desk.heard(LoadStaged(7, 1, (None,)))
    assert desk.ended[0].results[0].statuses == (UNKNOWN, UNKNOWN)
    assert desk.desk.plan().loads == ()
    assert desk.orders.closed == []


def test_of_several_groups_all_come_or_none_is_copied() -> None:
    desk = Desk()
    begun(desk, rows(2), rows(2, group=1))
    desk.desk.heard(LoadStaged(7, 1, (staged(30, OK, OK), staged(31, OK, CORRUPT))))
    assert [result.usable for result in desk.ended[0].results] == [2, 1]
    assert desk.orders.closed == [30, 31]
    assert desk.desk.plan().loads == ()


def test_a_load_staged_for_ranks_that_attached_anew_since_is_a_miss() -> None:
    desk = Desk()
    begun(desk, rows(2))
    desk.desk.heard(LoadStaged(7, 1, (staged(30, OK, OK),)))
    desk.desk.reported(StepReport(attachments={0: 2}))
    assert desk.desk.plan().loads == ()
    assert desk.ended[0].results[0].usable == 0
    assert desk.orders.closed == [30]


def test_a_load_that_nobody_waits_for_is_closed_when_it_is_staged() -> None:
    desk = Desk()
    begun(desk, rows(2))
    assert desk.desk.drop_load(7)
    desk.desk.heard(LoadStaged(7, 1, (staged(30, OK, OK),)))
    assert desk.orders.closed == [30]
    assert (desk.ended, desk.desk.plan().loads) == ([], ())
