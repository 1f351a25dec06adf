"""Block tables of the requests as the engine allocates: every block that changes hands has its guard raised here.

Invariants: a guard is raised before anything is written into its block, and the table notes the guard from then on;
``take_reused`` names every such block once for the node, before it hears of anything else about the step.
Threading: the scheduler's thread. Arrays are worked on in pieces and made once per step: it is the engine that waits.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, final

import numpy as np

from blockyard.connectors.engine_guards import EngineGuards, Guards, Numbers
from blockyard.connectors.vllm.block_tables import BlockTable, GivenBlocks
from blockyard.connectors.vllm.tracked_request import EngineFacts, TrackedRequest


class OnReused(Protocol):
    """Told of blocks that changed hands."""

    def __call__(self, blocks: Numbers, *, by_others: bool) -> None:
        """Others than we may be about to fill them; the filler may be among them."""
        ...


@final
class RequestTables:
    """Tables of all requests of one engine, which keep them themselves."""

    def __init__(self, facts: EngineFacts, guards: EngineGuards, on_reused: OnReused | None) -> None:
        """Begin with no block reused."""
        self._facts: Final = facts
        self._guards: Final = guards
        self._on_reused: Final = on_reused
        self._reused: list[Numbers] = []

    def new(self, tokens: int) -> list[BlockTable]:
        """Empty tables of a request, with room for so many tokens."""
        row = self._facts.block_tokens
        return [
            BlockTable(group.pages_per_row(row), tokens // group.engine_block_tokens + 1)
            for group in self._facts.groups
        ]

    def begin(
        self, tracked: TrackedRequest, blocks: tuple[GivenBlocks, ...], local_tokens: int, *, by_others: bool
    ) -> None:
        """The engine gave a request its blocks, the first of which hold so many tokens already."""
        tracked.tables = self.new(tracked.request.num_tokens)
        for group, table, given in zip(self._facts.groups, tracked.tables, blocks, strict=True):
            numbers = np.array(given[:], np.int64)
            held = numbers[: local_tokens // group.engine_block_tokens]
            if len(held):
                table.append(held, self._guards.values(held))
            self._take_over(table, numbers[len(held) :], by_others=by_others)
        tracked.next_row = [local_tokens // self._facts.block_tokens] * len(tracked.tables)

    def extend(self, tracked: TrackedRequest, blocks: tuple[GivenBlocks, ...], *, by_others: bool) -> None:
        """The engine gave a request more blocks; ``blocks`` are all that it has."""
        for table, given in zip(tracked.tables, blocks, strict=True):
            self._take_over(table, np.array(given[len(table) :], np.int64), by_others=by_others)

    def grow(self, cached: Any, tracked_of: Callable[[str], TrackedRequest | None]) -> None:
        """Running requests got more blocks for the step that the engine describes in ``scheduled_cached_reqs``."""
        grown: list[tuple[BlockTable, int]] = []
        numbers: list[int] = []
        strangers: list[int] = []
        """Blocks of requests of which nobody told us: whose they were, they are not any more."""
        resumed: Sequence[str] = cached.resumed_req_ids
        for request_id, new_blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if new_blocks is None or request_id in resumed:
                continue  # a resumed request was told of at its allocation
            tracked = tracked_of(request_id)
            if tracked is None:
                strangers += [block for blocks in new_blocks for block in blocks]
                continue
            for table, blocks in zip(tracked.tables, new_blocks, strict=True):
                if blocks:
                    numbers += blocks
                    grown.append((table, len(numbers)))
        if strangers:
            self._reuse(np.array(strangers, np.int64), by_others=True)
        if not grown:
            return
        new = np.frombuffer(array("q", numbers), np.int64)  # half the time of np.array
        guards, first = self._reuse(new, by_others=False), 0
        for table, stop in grown:
            table.append(new[first:stop], guards[first:stop])
            first = stop

    def take_reused(self) -> list[Numbers]:
        """Blocks that changed hands since the last call."""
        reused, self._reused = self._reused, []
        return reused

    def _take_over(self, table: BlockTable, blocks: Numbers, *, by_others: bool) -> None:
        """Blocks that were somebody else's, or nobody's, become this request's; others may be about to fill them."""
        if len(blocks):
            table.append(blocks, self._reuse(blocks, by_others=by_others))

    def _reuse(self, blocks: Numbers, *, by_others: bool) -> Guards:
        raised = self._guards.raise_guards(blocks)
        self._reused.append(blocks)
        if self._on_reused is not None:
            self._on_reused(blocks, by_others=by_others)
        return raised
