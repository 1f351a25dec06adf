"""Which stored blocks found at start-up become blocks of the table, and which are surplus copies.

A tier keeps one row per key and group. After a crash two slots may hold the same block; the higher generation wins, and
a registered block that somebody pins is never displaced.
Pure functions. Threading: no state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blockyard.core.block_facts import AdoptedBlock
from blockyard.core.vocabulary import BlockId, ContentKey, Generation, GroupId


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
