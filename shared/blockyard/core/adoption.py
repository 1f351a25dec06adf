"""Stored blocks found at start-up: which of them become blocks of the table, and which are surplus copies.

A tier keeps one row per key and group. After a crash two slots may hold the same block; the higher generation wins, and
a registered block that somebody pins is never displaced.
Threading: the owner thread of the table.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blockyard.core.block_facts import MAX_GROUP, MAX_POSITION, AdoptedBlock
from blockyard.core.block_table import BlockTable
from blockyard.core.errors import KernelError
from blockyard.core.row_batch import RowBatch
from blockyard.core.states import FREE, HELD, INACTIVE
from blockyard.core.vocabulary import DIGEST_BYTES, KEY_BYTES, BlockId, ContentKey, Generation, GroupId
from blockyard.core.whole_numbers import is_whole


@dataclass(frozen=True, slots=True)
class Incumbent:
    """Row that holds the key already."""

    block: BlockId
    generation: Generation
    pinned: bool


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """Records to register, rows of records to free, and registered rows that give way."""

    fresh: tuple[AdoptedBlock, ...]
    losing: tuple[BlockId, ...]
    replaced: tuple[BlockId, ...]


def plan_adoption(
    records: Sequence[AdoptedBlock], incumbent: Callable[[GroupId, ContentKey], Incumbent | None]
) -> AdoptionPlan:
    """Judge ``records`` against each other and against what is registered; ``fresh`` is in order of position."""
    best: dict[tuple[GroupId, ContentKey], AdoptedBlock] = {}
    losing: list[BlockId] = []
    for record in sorted(records, key=lambda record: record.generation):
        earlier = best.get((record.group, record.key))
        if earlier is not None:
            losing.append(earlier.block)
        best[record.group, record.key] = record
    fresh: list[AdoptedBlock] = []
    replaced: list[BlockId] = []
    for name, record in best.items():
        holder = incumbent(*name)
        if holder is None:
            fresh.append(record)
        elif not holder.pinned and holder.generation < record.generation:
            fresh.append(record)
            replaced.append(holder.block)
        else:
            losing.append(record.block)
    fresh.sort(key=lambda record: record.position)
    return AdoptionPlan(tuple(fresh), tuple(losing), tuple(replaced))


def _require_header_widths(record: AdoptedBlock) -> None:
    numbers = is_whole(record.generation) and is_whole(record.position, most=MAX_POSITION)
    names = len(record.key) == len(record.parent) == len(record.tenant) == KEY_BYTES
    if not (numbers and names and is_whole(record.group, most=MAX_GROUP) and len(record.identity) == DIGEST_BYTES):
        raise KernelError(
            "no header has such values",
            block=record.block,
            generation=str(record.generation),
            position=str(record.position),
            group=str(record.group),
            key=len(record.key),
            parent=len(record.parent),
            identity=len(record.identity),
            tenant=len(record.tenant),
        )


def adopt(table: BlockTable, records: Sequence[AdoptedBlock]) -> list[BlockId]:
    """FREE → INACTIVE with the facts of stored blocks; the losers of equal keys → AWAIT_FREE and returned.

    Raises:
        KernelError: a value would not fit into the header from which it is said to come.
    """

    def incumbent(group: GroupId, key: ContentKey) -> Incumbent | None:
        row = table.names.in_group(group).get(key)
        if row is None:
            return None
        return Incumbent(row, Generation(table.generations.column[row]), table.states.column[row] == HELD)

    for record in records:
        _require_header_widths(record)
    for group in dict.fromkeys(record.group for record in records):
        table.make_way(group, [record.key for record in records if record.group == group])
    plan = plan_adoption(records, incumbent)
    table.policy.remove(plan.replaced)
    table.policy.forget(plan.replaced)
    for record in records:
        table.generations.set_stored(record.block, record.generation)
        table.names.write_stored(record)
    # Index entries of replaced rows are overwritten below by the rows that replace them.
    table.to_await_free(RowBatch(list(plan.replaced)), INACTIVE)
    for record in plan.fresh:
        table.names.replace(record.block, record.group, record.key)
    # In order of position, so that the policy, which evicts the tail of a batch first, drops deep blocks first.
    fresh = RowBatch([record.block for record in plan.fresh])
    table.states.change(fresh, FREE, INACTIVE)
    table.policy.insert(fresh.rows)
    table.to_await_free(RowBatch(list(plan.losing)), FREE)
    table.free.remove([record.block for record in records])
    return [*plan.losing, *plan.replaced]
