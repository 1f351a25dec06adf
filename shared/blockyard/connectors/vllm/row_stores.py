"""Rows that become complete in a step, and what is done with them: registered when all ranks have completed the step.

Invariants: a row is registered only while all its blocks have the guards with which the request got them, checked by
the client's thread before the announcement, and by the node again around every copy; every ticket is settled once.
Threading: the scheduler's thread.
"""

from collections.abc import Callable
from itertools import count
from typing import final

from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.vllm.block_tables import BlockTable
from blockyard.connectors.vllm.node_calls import NodeCalls
from blockyard.connectors.vllm.rows import Rows
from blockyard.connectors.vllm.step_plan import StepReport
from blockyard.connectors.vllm.tracked_request import EngineFacts, TrackedRequest
from blockyard.core.vocabulary import EngineBlockId

_Listed = tuple[TrackedRequest, BlockTable, int, int, int]
"""Request, its table at that time, group, first row, row after the last."""
CompleteRows = Callable[[TrackedRequest, BlockTable, int, int, int], None]
"""Takes the same."""


@final
class RowStores:
    """Rows on their way from a step to the node."""

    def __init__(
        self,
        facts: EngineFacts,
        guards: EngineGuards,
        calls: NodeCalls,
        on_complete: CompleteRows | None = None,
    ) -> None:
        """Tell ``on_complete`` of rows as they are listed."""
        self._facts = facts
        self._guards = guards
        self._calls = calls
        self._on_complete = on_complete
        self._listed: dict[int, list[_Listed]] = {}
        self._tickets: dict[int, TrackedRequest] = {}
        self._distrusted: dict[int, set[EngineBlockId]] = {}
        self._numbers = count(1)

    def list_complete(self, step: int, tracked: TrackedRequest, computed_tokens: int) -> bool:
        """List the rows that are complete when this step is; whether there are any."""
        if not self._facts.writes:
            return False
        # Tokens that are only drafted have no hash yet, and neither has one that another step in flight samples: rows
        # that end among them are listed by a later step, which has computed their accepted tokens.
        hashed = len(tracked.request.block_hashes) // self._facts.hashes_per_row
        complete = min(computed_tokens // self._facts.block_tokens, hashed)
        listed = False
        for group, first in enumerate(tracked.next_row):
            if first >= complete:
                continue
            tracked.next_row[group] = complete
            self._listed.setdefault(step, []).append((tracked, tracked.tables[group], group, first, complete))
            tracked.unreported += 1
            listed = True
            if self._on_complete is not None:
                self._on_complete(tracked, tracked.tables[group], group, first, complete)
        return listed

    def reported(self, report: StepReport) -> list[int]:
        """Steps that all ranks have completed by now; their rows are registered."""
        done = [step for step, ranks in report.ranks.items() if ranks >= self._facts.ranks]
        for step in sorted(done):
            for tracked, table, group, first, stop in self._listed.pop(step, ()):
                tracked.unreported -= 1
                self.register(tracked, table, group, first, stop)
        return done

    def register(self, tracked: TrackedRequest, table: BlockTable, group: int, first_row: int, stop_row: int) -> None:
        """Announce those of the rows whose blocks nobody got since."""
        if not self._facts.writes:
            return
        pages = table.filled(first_row, stop_row)
        if pages is None:
            return
        rows = Rows.named(group, pages, tracked.request.block_hashes, self._facts.hashes_per_row)
        for part in [rows] if not self._distrusted else self._trusted(rows):
            ticket = next(self._numbers)
            tracked.tickets.add(ticket)
            self._tickets[ticket] = tracked
            self._calls.register(part, ticket)

    def distrust(self, load: int, pages: set[EngineBlockId]) -> None:
        """A write of this load may still damage these blocks: whoever has them, they are not announced."""
        self._distrusted[load] = pages

    def trust(self, load: int) -> None:
        """No write of this load can follow."""
        self._distrusted.pop(load, None)

    def settled(self, ticket: int) -> None:
        """No store reads the rows of this registration."""
        tracked = self._tickets.pop(ticket, None)
        if tracked is not None:
            tracked.tickets.discard(ticket)

    def _trusted(self, rows: Rows) -> list[Rows]:
        distrusted = set().union(*self._distrusted.values())
        return [part for part in rows.intact(self._guards) if distrusted.isdisjoint(part.blocks())]

    def forget(self) -> None:
        """Nothing is registered or waited for any more."""
        for listed in self._listed.values():
            for tracked, *_ in listed:
                tracked.unreported = 0
        for tracked in self._tickets.values():
            tracked.tickets.clear()
        self._listed.clear()
        self._tickets.clear()
