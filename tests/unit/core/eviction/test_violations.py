"""The check of a table looks into the bands and the policy: every kind of damage to their structures is found."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from blockyard.core.block_table import BlockTable
from blockyard.core.errors import IntegrityError
from blockyard.core.eviction.arc import ArcPolicy
from blockyard.core.eviction.base import PolicyFactory
from blockyard.core.eviction.fifo import FifoPolicy
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.eviction.lru2 import Lru2Policy
from blockyard.core.eviction.multi_lru import MultiLruPolicy
from blockyard.core.eviction.retention import Retention
from blockyard.core.eviction.row_rings import RowRings
from blockyard.core.eviction.s3_fifo import S3FifoPolicy
from blockyard.core.invariants import check_table
from blockyard.core.registry import BlockRegistry
from blockyard.core.row_batch import RowBatch
from blockyard.core.states import DuplicatePolicy
from blockyard.core.vocabulary import BlockId, Tier
from blockyard.testing.blocks import chain, columns
from blockyard.testing.clock import FakeClock

POLICIES = (LruPolicy, FifoPolicy, Lru2Policy, ArcPolicy, S3FifoPolicy, MultiLruPolicy)
Damage = Callable[[Any], None]
"""Of the bands of a table, or of the policy in them."""


def make_table(make_policy: PolicyFactory) -> BlockTable:
    """Rows 0 to 3 are normal and inactive, 4 and 5 expendable, 6 and 7 kept, 8 and 9 held; the rest is free."""
    table = BlockTable(Tier.G2, 12, make_policy, DuplicatePolicy.REJECT, False, 1, BlockRegistry(), FakeClock())
    for name, blocks in (("normal", 4), ("spent", 2), ("kept", 2), ("held", 2)):
        batch, _ = table.grant(blocks, evict=False)
        table.stage(batch)
        table.register(batch, columns(chain(name, blocks)).names())
        if name != "held":
            table.release(batch)
    table.hint(chain("spent", 2), None)
    table.hint(chain("kept", 2), Retention(priority=7, ttl_seconds=5.0))
    return table


@pytest.mark.parametrize("make_policy", POLICIES)
def test_sound_structures_pass_through_a_life(make_policy: PolicyFactory) -> None:
    table = make_table(make_policy)
    check_table(table)
    kept = table.names.index[0]
    batch = RowBatch([kept[key] for key in chain("normal", 2)])
    for _ in range(3):
        table.pin(batch, columns(chain("normal", 1)).group)
        check_table(table)
        table.release(batch)
        check_table(table)
    for _ in range(5):
        granted, _ = table.grant(2, evict=True)
        check_table(table)
        table.abandon(granted)


# --- rings ----------------------------------------------------------------------------------------------------------
def start(rings: RowRings) -> BlockId:
    """Sentinel of the first ring in which rows stand."""
    return rings._sentinels[next(ring for ring in range(9) if rings.has_rows(ring))]


def skip_a_row(rings: RowRings) -> None:
    first = rings._next[start(rings)]
    rings._next[start(rings)] = rings._next[first]


def name_another_row_before(rings: RowRings) -> None:
    rings._previous[start(rings)] = rings._next[start(rings)]


def name_a_row_that_there_is_not(rings: RowRings) -> None:
    rings._next[start(rings)] = BlockId(99)


def lead_out_of_the_ring(rings: RowRings) -> None:
    last = rings._previous[start(rings)]
    rings._next[last], rings._previous[9] = BlockId(9), last


def close_a_circle_beside_the_ring(rings: RowRings) -> None:
    rings._next[9] = rings._previous[9] = BlockId(9)


def join_two_rows_to_a_circle_in_the_ring(rings: RowRings) -> None:
    """All links are mutual; only the way from the sentinel shows it."""
    first, last = rings._next[start(rings)], rings._previous[start(rings)]
    sentinel = start(rings)
    rings._next[last], rings._previous[first] = first, last
    rings._next[sentinel] = rings._previous[sentinel] = sentinel


RING_DAMAGES = (
    skip_a_row,
    name_another_row_before,
    name_a_row_that_there_is_not,
    lead_out_of_the_ring,
    close_a_circle_beside_the_ring,
    join_two_rows_to_a_circle_in_the_ring,
)


@pytest.mark.parametrize("damage", RING_DAMAGES)
@pytest.mark.parametrize("of", ["policy", "band"])
def test_damage_to_a_ring_is_found(of: str, damage: Callable[[RowRings], None]) -> None:
    table = make_table(ArcPolicy)
    bands: Any = table.policy
    damage(bands._inner._rings if of == "policy" else bands._spent)
    with pytest.raises(IntegrityError, match="ring"):
        check_table(table)


# --- heaps and sets -------------------------------------------------------------------------------------------------
def lose_the_mark_of_a_row(heap: Any) -> None:
    heap._marks[next(iter(heap))] = 0


def lose_the_entry_of_a_row(heap: Any) -> None:
    lost = next(iter(heap))
    heap._entries = sorted(entry for entry in heap._entries if entry & 0xFFFF_FFFF != lost)


def miscount_rows(heap: Any) -> None:
    heap._size += 1


def put_the_last_entry_first(heap: Any) -> None:
    heap._entries.reverse()


def forget_the_latest_number(heap: Any) -> None:
    heap._latest = 0


def enter_a_row_that_there_is_not(heap: Any) -> None:
    heap._entries.append(max(heap._entries) + 90)


@pytest.mark.parametrize(
    "damage",
    [
        lose_the_mark_of_a_row,
        lose_the_entry_of_a_row,
        miscount_rows,
        put_the_last_entry_first,
        forget_the_latest_number,
        enter_a_row_that_there_is_not,
    ],
)
@pytest.mark.parametrize("of", ["policy", "band", "ends"])
def test_damage_to_a_heap_is_found(of: str, damage: Damage) -> None:
    table = make_table(FifoPolicy)
    bands: Any = table.policy
    damage({"policy": bands._inner._heap, "band": bands._kept, "ends": bands._until}[of])
    with pytest.raises(IntegrityError, match="heap"):
        check_table(table)


# --- bands ----------------------------------------------------------------------------------------------------------
def set_all(**fields: object) -> Damage:
    """Give fields other values; a dictionary says which entries change."""

    def damage(structure: Any) -> None:
        for name, value in fields.items():
            if isinstance(value, dict):
                for place, entry in value.items():
                    getattr(structure, name)[place] = entry
            else:
                setattr(structure, name, value)

    damage.__name__ = f"set {fields}"
    return damage


def move_a_row_to_the_policy(bands: Any) -> None:
    bands._spent.unlink([BlockId(4)])
    bands._inner.insert([BlockId(4)])
    bands._place[4] = 0
    bands._apart -= 1


def put_a_row_into_both_bands(bands: Any) -> None:
    bands._kept.push([BlockId(4)], [7])


def take_a_row_out_of_its_band(bands: Any) -> None:
    bands._spent.unlink([BlockId(4)])


def take_a_kept_row_out(bands: Any) -> None:
    bands._kept.discard([BlockId(6)])


def let_time_run_for_a_normal_row(bands: Any) -> None:
    bands._until.push([BlockId(9)], [10])


@pytest.mark.parametrize(
    ("damage", "violation"),
    [
        (set_all(_hinted=5), "hinted"),
        (set_all(_apart=5), "in bands"),
        (set_all(_wanted={4: 0}), "hinted for"),
        (set_all(_place={4: 0}), "expendable"),
        (set_all(_place={0: 1}), "expendable"),
        (set_all(_place={6: 0}), "kept"),
        (set_all(_priority={6: 8}), "priority"),
        (set_all(_priority={6: 0}), "priority"),
        (move_a_row_to_the_policy, "holds a row of a band"),
        (put_a_row_into_both_bands, "kept rows stand"),
        (take_a_row_out_of_its_band, "expendable rows stand"),
        (take_a_kept_row_out, "kept rows stand"),
        (let_time_run_for_a_normal_row, "time runs"),
    ],
)
@pytest.mark.parametrize("make_policy", [LruPolicy, S3FifoPolicy])
def test_damage_to_the_bands_is_found(make_policy: PolicyFactory, damage: Damage, violation: str) -> None:
    table = make_table(make_policy)
    damage(table.policy)
    with pytest.raises(IntegrityError, match=violation):
        check_table(table)


# --- policies -------------------------------------------------------------------------------------------------------
def exchange_lists(policy: Any) -> None:
    policy._rings.unlink([BlockId(0)])
    policy._rings.append([BlockId(0)], 2)


def exchange_queues(policy: Any) -> None:
    policy._queues[1].discard([BlockId(0)])
    policy._queues[2].push([BlockId(0)], [0])


def leave_the_set(policy: Any) -> None:
    policy._rows.leave([BlockId(0)])


@pytest.mark.parametrize(
    ("make_policy", "damage", "violation"),
    [
        (FifoPolicy, set_all(_born={0: 9}), "place of its birth"),
        (FifoPolicy, set_all(_born={0: 0}), "place of its birth"),
        (FifoPolicy, set_all(_births=1), "next birth"),
        (Lru2Policy, set_all(_previous={0: 1}, _last={0: 1}), "last use but one"),
        (Lru2Policy, set_all(_previous={8: 3}, _last={8: 2}), "uses are out of order"),
        (Lru2Policy, set_all(_now=0), "uses are out of order"),
        (ArcPolicy, leave_the_set, "stand in its lists"),
        (ArcPolicy, set_all(_level={0: 2}), "another list"),
        (ArcPolicy, set_all(_counted={0: 2}), "another list"),
        (ArcPolicy, exchange_lists, "another list"),
        (ArcPolicy, set_all(_sizes={1: 3}), "another size"),
        (ArcPolicy, set_all(_target=-0.5), "target"),
        (ArcPolicy, set_all(_target=99.0), "target"),
        (S3FifoPolicy, leave_the_set, "stand in its queues"),
        (S3FifoPolicy, set_all(_queue={0: 2}), "another queue"),
        (S3FifoPolicy, exchange_queues, "another queue"),
        (S3FifoPolicy, set_all(_counted={0: 0}), "does not count"),
        (S3FifoPolicy, set_all(_sizes={1: 3}), "another size"),
        (S3FifoPolicy, set_all(_uses={0: 4}), "too often"),
        (MultiLruPolicy, leave_the_set, "stand in its lists"),
        (MultiLruPolicy, set_all(_list={0: 1}), "another list"),
        (MultiLruPolicy, exchange_lists, "another list"),
        (MultiLruPolicy, set_all(_tick=1), "after now"),
    ],
)
def test_damage_to_a_policy_is_found(make_policy: PolicyFactory, damage: Damage, violation: str) -> None:
    table = make_table(make_policy)
    bands: Any = table.policy
    damage(bands._inner)
    with pytest.raises(IntegrityError, match=violation):
        check_table(table)


@pytest.mark.parametrize("make_policy", [ArcPolicy, S3FifoPolicy, MultiLruPolicy])
def test_a_miscounted_set_is_found(make_policy: PolicyFactory) -> None:
    table = make_table(make_policy)
    bands: Any = table.policy
    bands._inner._rows._size += 1
    with pytest.raises(IntegrityError, match="are said to be"):
        check_table(table)


class UncheckedPolicy:
    """A policy of another package: it keeps the port and no more, and shows a row twice."""

    def __init__(self, columns: object) -> None:
        self.rows: list[BlockId] = []

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Any:
        return iter(self.rows)

    def insert(self, blocks: Sequence[BlockId]) -> None:
        self.rows += blocks

    def remove(self, blocks: Sequence[BlockId]) -> None:
        self.rows = [row for row in self.rows if row not in blocks]

    def touch(self, blocks: Sequence[BlockId]) -> None: ...

    def take(self, count: int) -> list[BlockId]:
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        self.rows = [*blocks, *self.rows]

    def forget(self, blocks: Sequence[BlockId]) -> None: ...


@pytest.mark.parametrize(
    ("row", "violation"), [(1, "other rows than it shows"), (99, "there is not"), (8, "exactly the inactive rows")]
)
def test_of_a_policy_that_checks_nothing_itself_the_order_is_checked(row: int, violation: str) -> None:
    table = make_table(UncheckedPolicy)
    check_table(table)
    bands: Any = table.policy
    bands._inner.rows[bands._inner.rows.index(0)] = BlockId(row)
    with pytest.raises(IntegrityError, match=violation):
        check_table(table)
