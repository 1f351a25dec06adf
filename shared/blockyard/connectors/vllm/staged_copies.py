"""Loads whose rows the ranks copy out of pinned slots (executor ``engine``): the scheduler's side.

::

    begin ──node brings the rows into slots──► staged ──order of a step──► ended in all ranks ──► closed, and told

Invariants: every load ends once, when no rank copies for it; the node is told so at that time, not before. Slots are
read only by ranks whose attachments to the node were known when they were asked for (see ``engine_copies``).
Threading: the scheduler's thread.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import final

from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.rank_copies import RowCopy
from blockyard.connectors.slot_calls import StagedLoad
from blockyard.connectors.vllm.node_calls import LoadEnded
from blockyard.connectors.vllm.rows import Rows
from blockyard.connectors.vllm.slot_orders import LoadStaged, SlotOrders
from blockyard.connectors.vllm.step_plan import CopyOrder
from blockyard.core.vocabulary import ItemStatus


@final
@dataclass(slots=True)
class _Load:
    rows: tuple[Rows, ...]
    attachments: tuple[int, ...]
    asked_at: float
    life: int = 0
    parts: tuple[StagedLoad | None, ...] = ()
    results: list[LoadResult] = field(default_factory=list)


@final
class StagedCopies:
    """Loads under way."""

    def __init__(self, slots: SlotOrders, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without loads and ranks."""
        self._orders = slots
        self._clock = clock
        self._attachments: tuple[int, ...] = ()
        self._loads: dict[int, _Load] = {}
        self._staged: list[int] = []
        """Loads that the ranks can begin."""
        self._under_way: dict[int, int] = {}
        """Load of an order."""

    def attached(self, attachments: tuple[int, ...]) -> None:
        """The ranks are attached anew, all of them; or, without any, there is no node."""
        self._attachments = attachments

    def begin(self, load: int, request: str, rows: Sequence[Rows], ttl_seconds: float) -> None:
        """Have the rows of a load staged."""
        self._loads[load] = _Load(tuple(rows), self._attachments, self._clock())
        self._orders.stage(load, request, rows, ttl_seconds)

    def staged(self, news: LoadStaged) -> LoadEnded | None:
        """Rows lie in slots; the end of the load where there is nothing to copy."""
        load = self._loads.get(news.load)
        if load is None:
            self._close(news.life, news.parts)
            return None
        load.life, load.parts = news.life, news.parts
        load.results = [
            LoadResult.unknown(rows.count) if part is None else LoadResult(part.statuses, part.sources)
            for rows, part in zip(load.rows, news.parts, strict=True)
        ]
        is_whole = all(result.usable == rows.count for result, rows in zip(load.results, load.rows, strict=True))
        if load.results[0].usable and (is_whole or len(load.rows) == 1):
            self._staged.append(news.load)
            return None
        return self._end(news.load)

    def take_orders(self, number: Callable[[], int]) -> tuple[tuple[CopyOrder, ...], list[LoadEnded]]:
        """What the ranks load in the step that is being planned, and loads that cannot be any more."""
        orders: list[CopyOrder] = []
        lost: list[LoadEnded] = []
        for name in self._staged:
            load = self._loads[name]
            if load.attachments == self._attachments:
                order = CopyOrder(
                    number(), tuple(copy for index in range(len(load.rows)) for copy in _copies(load, index))
                )
                self._under_way[order.number] = name
                orders.append(order)
            else:
                load.results = [LoadResult.unknown(rows.count) for rows in load.rows]
                lost.append(self._end(name))
        self._staged.clear()
        return tuple(orders), lost

    def ended(self, number: int, statuses: Sequence[ItemStatus]) -> LoadEnded | None:
        """No rank copies for this order any more; None where it is none of these."""
        name = self._under_way.pop(number, None)
        if name is None:
            return None
        load = self._loads[name]
        first = 0
        for index, result in enumerate(load.results):
            stop = first + result.usable
            load.results[index] = LoadResult((*statuses[first:stop], *result.statuses[result.usable :]), result.sources)
            first = stop
        return self._end(name)

    def is_copied(self, load: int) -> bool:
        """Whether ranks copy for this load now."""
        return load in self._under_way.values()

    def forget(self, load: int) -> None:
        """Nobody waits for this load, for which no rank copies."""
        self._loads.pop(load, None)
        if load in self._staged:
            self._staged.remove(load)

    # --- inside -------------------------------------------------------------------------------------------------------
    def _end(self, name: int) -> LoadEnded:
        load = self._loads.pop(name)
        self._close(load.life, load.parts)
        return LoadEnded(name, tuple(load.results), self._clock() - load.asked_at)

    def _close(self, life: int, parts: Sequence[StagedLoad | None]) -> None:
        loads = [part.load for part in parts if part is not None]
        if loads:
            self._orders.close_loads(life, loads)


def _copies(load: _Load, index: int) -> list[RowCopy]:
    rows, part, usable = load.rows[index], load.parts[index], load.results[index].usable
    if part is None:
        return []
    per_row, pages = rows.per_row, rows.pages.tolist()
    return [
        RowCopy(tuple(pages[row * per_row : (row + 1) * per_row]), part.slots[row], part.generations[row], rows.group)
        for row in range(usable)
    ]
