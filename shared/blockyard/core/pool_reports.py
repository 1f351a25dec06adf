"""What verbs of a block pool answer. Threading: values; the handles in them are the caller's to end."""

from dataclasses import dataclass

from blockyard.core.block_facts import BlockFacts
from blockyard.core.handles import DoomedBlocks, ImmutableBlocks, MutableBlocks
from blockyard.core.states import CondemnOutcome
from blockyard.core.vocabulary import ContentKey, GroupId


@dataclass(frozen=True, slots=True)
class Allocation:
    """Granted rows and the blocks that had to go for them (announce these before the rows are written)."""

    blocks: MutableBlocks
    evicted: tuple[BlockFacts, ...]
    """First those whose rows are granted now, then relatives that left with them, whose rows are free."""


@dataclass(frozen=True, slots=True)
class ScatteredMatch:
    """Result of ``match_scattered``."""

    blocks: ImmutableBlocks
    """The blocks that were found, pinned, in the order of the keys; one entry per occurrence."""
    places: tuple[int | None, ...]
    """Per key, where its block stands in ``blocks``; ``None`` where there is none."""


@dataclass(frozen=True, slots=True)
class AdoptReport:
    """Result of ``adopt``: blocks registered, and rows that hold an older copy of the same block."""

    adopted: int
    losers: DoomedBlocks


@dataclass(frozen=True, slots=True)
class CondemnedBlocks:
    """Result of ``condemn``.

    ``facts`` names the block that left the index (empty when STALE, and for a duplicate, which was never there);
    ``doomed`` holds its row when it is free-able now.
    """

    outcome: CondemnOutcome
    facts: tuple[BlockFacts, ...]
    doomed: DoomedBlocks


@dataclass(frozen=True, slots=True)
class CutReport:
    """Result of ``cut``."""

    removed: int
    """Blocks that nobody held; their rows come out of ``sweep``, or of ``drain_doomed`` where a key is stored again."""
    pinned: int
    """Blocks that are still held; their rows come out of ``drain_doomed`` after the last release."""
    in_flight: int
    """Rows being written: they will not be registered."""


@dataclass(frozen=True, slots=True)
class SweptBlocks:
    """Result of ``sweep``."""

    doomed: DoomedBlocks
    """Rows that are free-able now."""
    names: list[tuple[ContentKey, GroupId]]
    """What was swept, held blocks included; perhaps stored again by now."""
