"""One open load, and the port by which loads ask the shared index.

Threading: owned by the event loop of the service.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.onboard_plan import ItemState, LoadOutcome, OnboardPlan
from blockyard.core.pins import PinKind, PinOwner
from blockyard.core.vocabulary import (
    Availability,
    BlockId,
    EngineBlockId,
    Executor,
    Generation,
    Guard,
    ItemStatus,
    LoadId,
)
from blockyard.runtime.spans import Span
from blockyard.tiers.index_value import Locator
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.job_order import OpenOrder, Places

LoadCallback = Callable[[LoadId, LoadOutcome], None]
FindCallback = Callable[[Sequence[tuple[Availability, Locator | None]]], None]


class SharedIndex(Protocol):
    """Port to the remote tier's lookup."""

    def usable(self) -> bool:
        """Whether the remote tier is attached and answers."""
        ...

    def find(
        self,
        scope: BlockScope,
        names: Sequence[BlockName],
        timeout_seconds: float,
        done: FindCallback,
        trace: TraceParent = NO_TRACE,
    ) -> None:
        """Ask where blocks lie; ``done`` gets one answer per block, later, UNKNOWN where none came in time."""
        ...


@dataclass(slots=True, eq=False)
class Load:
    """One open load."""

    load: LoadId
    session: EngineSession
    scope: BlockScope
    names: tuple[BlockName, ...]
    pages: tuple[EngineBlockId, ...]
    """Row by row, as many as the group has per row."""
    guards: tuple[Guard, ...]
    """Aligned with ``pages``."""
    plan: OnboardPlan
    opened_at: float
    deadline: float
    stage_deadline: float
    on_finished: LoadCallback
    span: Span
    slots: dict[int, tuple[BlockId, Generation]] = field(default_factory=dict)
    locators: dict[int, Locator] = field(default_factory=dict)
    due: set[int] = field(default_factory=set)
    """Blocks that need their next source."""
    linked: set[TraceParent] = field(default_factory=set)
    """Other work that its span points to."""
    last_hop: OpenOrder | None = None
    abandoned: bool = False
    finished: bool = False

    @property
    def owner(self) -> PinOwner:
        """Owner of its pins."""
        return PinOwner(PinKind.JOB, f"load-{self.load}")

    @property
    def staged(self) -> bool:
        """Whether the ranks of the engine copy its rows out of G2 themselves."""
        return self.session.executor is Executor.ENGINE

    @property
    def pages_per_row(self) -> int:
        """Pages of one of its rows."""
        return len(self.pages) // len(self.names) if self.names else 0

    @property
    def targets(self) -> list[EngineBlockId]:
        """Pages that it may write."""
        return [page for page in self.pages if page != NO_PAGE]

    def places(self, indexes: Sequence[int]) -> Places:
        """Pages of these rows with their guards."""
        count = self.pages_per_row
        wanted = [place for index in indexes for place in range(index * count, (index + 1) * count)]
        return Places(tuple(self.pages[place] for place in wanted), tuple(self.guards[place] for place in wanted))

    def unsettled(self) -> list[int]:
        """Blocks whose end is not known yet."""
        final = (ItemState.DONE, ItemState.FAILED)
        return [index for index in range(len(self.names)) if self.plan.state(index) not in final]

    def give_up(self, indexes: Iterable[int], status: ItemStatus) -> None:
        """These blocks fail."""
        for index in indexes:
            self.plan.give_up(index, status)
