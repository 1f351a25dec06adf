"""Complete rows on their way into granted slots, copied by the ranks (executor ``engine``): the scheduler's side.

::

    row complete ──slot at hand──► order of a step ──ended in all ranks──► committed, or its slot given back
         └──none──► waits, as long as its blocks are whole

Slots are asked for ahead, so that no step waits, and given back when they are not used soon: a clear of the node's
memory waits for them. They are written only by ranks whose attachments to the node were
known when they were asked for (see ``engine_copies``); those of others are given back untouched.
Invariants: a row is ordered while all its blocks have the guards with which the request got them, and the fences keep
them from being rewritten before they are read; every granted slot is committed or given back once.
Threading: the scheduler's thread.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, final

from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.rank_copies import RowCopy
from blockyard.connectors.vllm.block_tables import BlockTable
from blockyard.connectors.vllm.rows import Rows
from blockyard.connectors.vllm.slot_orders import SlotOrders, SlotsGranted
from blockyard.connectors.vllm.step_plan import CopyOrder
from blockyard.connectors.vllm.tracked_request import EngineFacts, TrackedRequest
from blockyard.core.vocabulary import BlockId, Generation, ItemStatus

_TARGET: Final = 64
"""Slots to have at hand."""
_ASK_AGAIN_SECONDS: Final = 0.02
_KEEP_SECONDS: Final = 2.0
"""How long slots that are not used are kept."""
_MOST_WAITING: Final = 4_096
"""Entries, each some rows of one request; the oldest are left out."""


@final
@dataclass(frozen=True, slots=True)
class _Slot:
    life: int
    grant: int
    slot: BlockId
    generation: Generation


@final
@dataclass(frozen=True, slots=True)
class _Waiting:
    tracked: TrackedRequest
    table: BlockTable
    group: int
    first_row: int
    stop_row: int


@final
@dataclass(frozen=True, slots=True)
class _Part:
    rows: Rows
    slots: tuple[_Slot, ...]


@final
@dataclass(frozen=True, slots=True)
class _Order:
    attachments: tuple[int, ...]
    parts: tuple[_Part, ...]


@final
class SlotStores:
    """Rows that are, or could be, on their way."""

    def __init__(
        self,
        facts: EngineFacts,
        guards: EngineGuards,
        slots: SlotOrders,
        on_stored: Callable[[int], None],
        on_skipped: Callable[[int], None],
        hold_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tell how many rows were handed to the node, and how many could not be.

        Args:
            facts: of the engine.
            guards: of its blocks.
            slots: of the node.
            on_stored: told the number of rows that the node has now.
            on_skipped: told the number of rows whose blocks were reused before there was a slot, or that failed.
            hold_seconds: how long an engine without other work is kept stepping for rows that wait for a slot.
            clock: seconds.
        """
        self._facts = facts
        self._guards = guards
        self._orders = slots
        self._on_stored = on_stored
        self._on_skipped = on_skipped
        self._hold_seconds = hold_seconds
        self._clock = clock
        self._hold_until = 0.0
        self._keep_until = 0.0
        self._attachments: tuple[int, ...] = ()
        self._slots: deque[_Slot] = deque()
        self._asked: tuple[int, tuple[int, ...]] | None = None
        """How many slots are asked for, and for which attachments."""
        self._ask_at = 0.0
        self._waiting: deque[_Waiting] = deque()
        self._under_way: dict[int, _Order] = {}

    @property
    def busy(self) -> bool:
        """Whether the engine has to go on stepping: ranks copy, or are about to."""
        return bool(self._under_way or self._asked) or self._is_holding

    # --- the node and the ranks ---------------------------------------------------------------------------------------
    def attached(self, attachments: tuple[int, ...]) -> None:
        """The ranks are attached anew, all of them; or, without any, there is no node. Slots of before are void."""
        self._attachments = attachments
        self._return_all()

    def granted(self, news: SlotsGranted) -> None:
        """What was asked for is here."""
        if self._asked is None:
            return
        (count, attachments), self._asked = self._asked, None
        grant = news.grant
        slots = [
            _Slot(news.life, grant.grant, slot, generation)
            for slot, generation in zip(grant.slots, grant.generations, strict=True)
        ]
        if attachments != self._attachments:
            self._give_back(slots)
            return
        self._slots += slots
        self._keep_until = self._clock() + _KEEP_SECONDS
        if len(slots) < count:
            self._ask_at = self._clock() + _ASK_AGAIN_SECONDS

    # --- rows ---------------------------------------------------------------------------------------------------------
    def complete(self, tracked: TrackedRequest, table: BlockTable, group: int, first_row: int, stop_row: int) -> None:
        """These rows are complete when the step that is being planned is."""
        if len(self._waiting) == _MOST_WAITING:
            oldest = self._waiting.popleft()
            self._on_skipped(oldest.stop_row - oldest.first_row)
        self._waiting.append(_Waiting(tracked, table, group, first_row, stop_row))
        self._hold_until = self._clock() + self._hold_seconds

    def order(self, number: int, *, idle: bool) -> CopyOrder | None:
        """What the ranks store in the step that is being planned; ``idle`` if the engine has no requests."""
        if self._slots and self._clock() >= self._keep_until:
            self._return_all()
        if not idle or self._is_holding:
            self._ask()
        parts: list[_Part] = []
        while self._waiting and self._slots:
            rows = self._waiting.popleft()
            stop = min(rows.stop_row, rows.first_row + len(self._slots))
            if stop < rows.stop_row:
                self._waiting.appendleft(_Waiting(rows.tracked, rows.table, rows.group, stop, rows.stop_row))
            found = self._whole(rows, stop)
            self._on_skipped(stop - rows.first_row - sum(part.count for part in found))
            parts += [_Part(part, tuple(self._slots.popleft() for _ in range(part.count))) for part in found]
        if idle:
            self.rest()
        if not parts:
            return None
        self._under_way[number] = _Order(self._attachments, tuple(parts))
        return CopyOrder(number, tuple(copy for part in parts for copy in _row_copies(part)))

    def ended(self, number: int, statuses: Sequence[ItemStatus]) -> bool:
        """No rank copies for this order any more; False where it is none of these."""
        order = self._under_way.pop(number, None)
        if order is None:
            return False
        is_valid = order.attachments == self._attachments
        first = 0
        for part in order.parts:
            copied = statuses[first : first + len(part.slots)]
            first += len(part.slots)
            self._settle(part, [is_valid and status is ItemStatus.OK for status in copied])
        return True

    def rest(self) -> None:
        """The engine has no requests, and perhaps no steps for a while: nothing waits for its slots."""
        if not self._is_holding:
            self._return_all()

    def forget(self) -> None:
        """Nothing is stored any more."""
        self._waiting.clear()
        self._under_way.clear()
        self._slots.clear()

    # --- inside -------------------------------------------------------------------------------------------------------
    @property
    def _is_holding(self) -> bool:
        return bool(self._waiting and self._attachments) and self._clock() < self._hold_until

    def _return_all(self) -> None:
        self._give_back(self._slots)
        self._slots.clear()

    def _ask(self) -> None:
        wanted = _TARGET - len(self._slots)
        if self._asked is None and self._attachments and 2 * wanted >= _TARGET and self._clock() >= self._ask_at:
            self._asked = (wanted, self._attachments)
            self._orders.reserve(wanted)

    def _whole(self, waiting: _Waiting, stop_row: int) -> list[Rows]:
        pages = waiting.table.filled(waiting.first_row, stop_row)
        if pages is None:
            return []
        block_hashes = waiting.tracked.request.block_hashes
        return Rows.named(waiting.group, pages, block_hashes, self._facts.hashes_per_row).intact(self._guards)

    def _settle(self, part: _Part, good: Sequence[bool]) -> None:
        shards = (1 << self._facts.groups[part.rows.group].shards(self._facts.ranks)) - 1
        for (life, grant, is_good), indexes in _alike(part.slots, good):
            slots = [part.slots[index].slot for index in indexes]
            if is_good:
                self._orders.commit(life, grant, slots, part.rows.part(indexes[0], indexes[-1] + 1), shards)
                self._on_stored(len(slots))
            else:
                self._orders.abort(life, grant, slots)
                self._on_skipped(len(slots))

    def _give_back(self, slots: Sequence[_Slot]) -> None:
        for (life, grant, _), indexes in _alike(slots, [False] * len(slots)):
            self._orders.abort(life, grant, [slots[index].slot for index in indexes])


def _alike(slots: Sequence[_Slot], good: Sequence[bool]) -> Iterator[tuple[tuple[int, int, bool], list[int]]]:
    """Stretches of slots of one grant and one outcome."""

    def kind(index: int) -> tuple[int, int, bool]:
        return slots[index].life, slots[index].grant, good[index]

    for shared, indexes in groupby(range(len(slots)), kind):
        yield shared, list(indexes)


def _row_copies(part: _Part) -> Iterator[RowCopy]:
    per_row, blocks = part.rows.per_row, part.rows.pages.tolist()
    for index, slot in enumerate(part.slots):
        pages = tuple(blocks[index * per_row : (index + 1) * per_row])
        yield RowCopy(pages, slot.slot, slot.generation, part.rows.group)
