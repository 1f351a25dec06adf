"""Loads that ranks of engines copy themselves: rows lie in G2, checked, and pinned while a rank may read them.

Invariants: a row stays pinned until the engine closes the load, or each process that may read it has attached anew, is
proven dead, or has lost the arena: a late read of a slot that was granted again would bring wrong bytes into G1.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable, Mapping
from typing import Final, final

from blockyard.core.arena_writers import AttachmentId, Quarantine
from blockyard.core.onboard_plan import LoadOutcome
from blockyard.core.vocabulary import BlockId, Generation, ItemStatus, LoadId, Tier
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.load import Load
from blockyard_block_manager.node_tables import NodeTables


@final
class StagedLoads:
    """All staged loads that ranks may read."""

    def __init__(self, tables: NodeTables) -> None:
        """Pin in ``tables``."""
        self._tables = tables
        self._open: Final[dict[LoadId, Load]] = {}
        self._quarantine: Quarantine[Load] = Quarantine()

    def __len__(self) -> int:
        """Staged loads whose rows are pinned."""
        return len(self._open) + len(self._quarantine)

    @property
    def rows(self) -> int:
        """Rows that they pin."""
        return sum(len(load.slots) for load in (*self._open.values(), *self._quarantine))

    @property
    def awaited(self) -> frozenset[AttachmentId]:
        """Attachments whose end pins wait for."""
        return self._quarantine.awaited

    def slots(self, load: LoadId) -> Mapping[int, tuple[BlockId, Generation]]:
        """Where the rows of an open staged load lie, by their numbers in it."""
        return self._open[load].slots if load in self._open else {}

    def keep(self, load: Load) -> None:
        """A load lies in G2 and its engine is told so: its pins stay."""
        self._open[load.load] = load

    def close(self, session: EngineSession, load_id: LoadId) -> None:
        """No copy of the ranks reads the slots of a load any more. Idempotent."""
        load = self._open.get(load_id)
        if load is not None and load.session is session:
            del self._open[load_id]
            unpin(self._tables, load)

    def end(self, session: EngineSession, writers: Iterable[AttachmentId]) -> None:
        """The engine is gone, or one of its ranks: pins stay for these processes; without any they end."""
        waits_for = list(writers)
        for load in [load for load in self._open.values() if load.session is session]:
            del self._open[load.load]
            if waits_for:
                self._quarantine.add(load, waits_for)
            else:
                unpin(self._tables, load)

    def ended(self, attachments: Iterable[AttachmentId]) -> None:
        """These attachments have ended."""
        for load in self._quarantine.ended(attachments):
            unpin(self._tables, load)

    def arena_replaced(self) -> None:
        """Who still reads, reads memory that nobody writes any more."""
        for load in (*self._open.values(), *self._quarantine.take_all()):
            unpin(self._tables, load)
        self._open.clear()


def unstaged(outcome: LoadOutcome) -> LoadOutcome:
    """The answer to a load whose rows are not pinned, after all: what was found is not known to stay."""
    kept = [status is not ItemStatus.OK for status in outcome.status]
    return LoadOutcome(
        tuple(status if keep else ItemStatus.UNKNOWN for status, keep in zip(outcome.status, kept, strict=True)),
        tuple(source if keep else None for source, keep in zip(outcome.sources, kept, strict=True)),
    )


def unpin(tables: NodeTables, load: Load) -> None:
    """End all pins of a load as one batch in chain order, so that eviction takes the tail before the head."""
    if load.owner not in tables.pins:
        return
    keys = [load.names[index].key for index in sorted(load.slots)]
    held = tables.holds(Tier.G2, keys, load.scope.group)
    batch = [key for key, here in zip(keys, held, strict=True) if here]
    with tables.pool(Tier.G2).pin_all(batch, load.scope.group):
        tables.pins.release(load.owner)
