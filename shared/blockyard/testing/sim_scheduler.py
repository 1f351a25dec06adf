"""Scheduler of a small paged engine for simulations: prefix cache, chunks, preemption, aborts, steps planned ahead.

It plans steps while earlier ones are in flight, gives freed blocks away at once, and lets a sibling connector fill
blocks too; so every order of writes and copies that an engine can cause occurs within a few hundred calls.
Tokens are bytes; a row, and a full block, is named by all tokens up to its end, which the byte oracle turns into what
its memory must hold.
Invariants: choices are seeded. Threading: one thread.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final, final

from blockyard.connectors.rank_copies import RowCopy
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import BlockId, EngineBlockId, Generation
from blockyard.tiers.device.fences import Fences
from blockyard.tiers.device.freed_blocks import FreedBlocks

BLOCK_TOKENS: Final = 2
ROW_PAGES: Final = 2
ROW_TOKENS: Final = BLOCK_TOKENS * ROW_PAGES
_AHEAD: Final = 3
"""Steps in flight at most."""
_MOST_RUNNING: Final = 4
_DOCUMENTS: Final = tuple(bytes(document * 32 + token for token in range(20)) for document in range(4))


@dataclass(slots=True, eq=False)
class Request:
    """One request; ``life`` tells its admissions apart."""

    tokens: bytes
    stop_at: int
    """Found out only when the output of the step that computed this token is processed."""
    table: list[EngineBlockId] = field(default_factory=list)
    computed: int = 0
    life: int = 0
    is_running: bool = False


@final
@dataclass(frozen=True, slots=True)
class Chunk:
    """Compute tokens ``start`` to ``stop`` of a request, reading all before them."""

    request: Request
    life: int
    table: tuple[EngineBlockId, ...]
    start: int
    stop: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class RowMove:
    """A row that is stored or loaded."""

    tokens: bytes
    """All up to the end of the row: its name."""
    copy: RowCopy
    guards: tuple[int, ...]
    """Of its pages when they were written, or given to the load."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Fill:
    """Blocks of a request that a connector fills: ours with ``rows``, or a sibling without."""

    request: Request
    start: int
    stop: int
    """Tokens that the request has when it is done; those from ``start`` on are filled."""
    table: tuple[EngineBlockId, ...]
    rows: tuple[RowMove, ...] = ()


@final
@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One step, as the scheduler half tells it to the ranks."""

    number: int
    chunks: tuple[Chunk, ...]
    ours: tuple[EngineBlockId, ...]
    """Blocks allocated since the last plan for compute and for our loads."""
    others: tuple[EngineBlockId, ...]
    """And those for the sibling's."""
    stores: tuple[RowMove, ...]
    loads: tuple[Fill, ...]
    sibling_loads: tuple[Fill, ...]


@final
class SlotBook:
    """Which rows lie in which slots; the part of the node."""

    def __init__(self, slots: int, random: Random) -> None:
        """Begin with all slots free."""
        self._random = random
        self._free = list(range(slots))
        self._generations = [0] * slots
        self.stored: dict[bytes, RowCopy] = {}
        self.pins: dict[bytes, int] = {}
        self.pending: set[bytes] = set()

    def grant(self, tokens: bytes, pages: tuple[EngineBlockId, ...]) -> RowCopy | None:
        """A slot for a row that is neither stored nor about to be; an unpinned row makes place."""
        if tokens in self.stored or tokens in self.pending:
            return None
        if not self._free:
            victims = [name for name in self.stored if not self.pins.get(name)]
            if not victims:
                return None
            self._free.append(self.stored.pop(self._random.choice(victims)).slot)
        slot = self._free.pop(self._random.randrange(len(self._free)))
        self._generations[slot] += 1
        self.pending.add(tokens)
        return RowCopy(pages, BlockId(slot), Generation(self._generations[slot]))

    def settle(self, move: RowMove, *, is_stored: bool) -> None:
        """A store ended."""
        self.pending.discard(move.tokens)
        if is_stored:
            self.stored[move.tokens] = move.copy
        else:
            self._free.append(move.copy.slot)


@final
class SimScheduler:
    """Decides; ``SimEngine`` lets the ranks do it."""

    def __init__(self, random: Random, fences: Fences, *, blocks: int, slots: int) -> None:
        """Begin without requests."""
        self._random = random
        self._fences = fences
        self.freed = FreedBlocks(fences)
        self.book = SlotBook(slots, random)
        self.guards = [0] * blocks
        self.in_flight: list[Plan] = []
        self._plans = 0
        self._free = [EngineBlockId(block) for block in range(blocks)]
        self._refs = [0] * blocks
        self._cached: dict[bytes, EngineBlockId] = {}
        self._names: dict[EngineBlockId, bytes] = {}
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self._ours: list[EngineBlockId] = []
        self._others: list[EngineBlockId] = []
        self._loads: list[Fill] = []
        self._sibling_loads: list[Fill] = []

    # --- what happens -------------------------------------------------------------------------------------------------
    def schedule(self) -> Plan | None:
        """Plan a step; None if too many are in flight."""
        if len(self.in_flight) >= _AHEAD:
            return None
        if len(self._running) < _MOST_RUNNING and self._random.random() < 0.7:
            self._admit(self._waiting.pop(0) if self._waiting else self._new_request())
        chunks: list[Chunk] = []
        stores: list[RowMove] = []
        for request in self._random.sample(self._running, len(self._running)):
            if request.is_running and request.computed < len(request.tokens):
                stop = min(request.computed + self._random.randint(1, ROW_TOKENS), len(request.tokens))
                if self._grow(request, stop, {chunk.request for chunk in chunks}):
                    chunks.append(Chunk(request, request.life, tuple(request.table), request.computed, stop))
                    stores += self._complete(request, stop)
        self._plans = self.freed.step_scheduled()
        plan = Plan(
            self._plans,
            tuple(chunks),
            tuple(self._ours),
            tuple(self._others),
            tuple(stores),
            tuple(self._loads),
            tuple(self._sibling_loads),
        )
        for told in (self._ours, self._others, self._loads, self._sibling_loads):
            told.clear()
        self.in_flight.append(plan)
        return plan

    def processed(self) -> Plan:
        """The output of the oldest step is here: requests that stop give their blocks back."""
        plan = self.in_flight.pop(0)
        self.freed.step_processed()
        for chunk in plan.chunks:
            request = chunk.request
            if request.life == chunk.life and request.is_running and chunk.stop >= request.stop_at:
                self._leave(request)
        return plan

    def abort(self) -> None:
        """A client goes away: its blocks are free at once, whatever is in flight."""
        running = [request for request in self._running if request.is_running]
        if running:
            self._leave(self._random.choice(running))

    def filled(self, fill: Fill) -> None:
        """A connector has filled the blocks of a request: it can run."""
        request = fill.request
        self._unpin(fill)
        request.computed = fill.stop
        request.is_running = True
        for end in range(BLOCK_TOKENS, fill.stop + 1, BLOCK_TOKENS):
            self._cache(request.tokens[:end], fill.table[end // BLOCK_TOKENS - 1])

    # --- decisions ----------------------------------------------------------------------------------------------------
    def _new_request(self) -> Request:
        document = self._random.choice(_DOCUMENTS)
        tokens = document[: self._random.randint(ROW_TOKENS, len(document))]
        return Request(tokens, self._random.randint(len(tokens) // 2, len(tokens)))

    def _admit(self, request: Request) -> None:
        tokens, hit = request.tokens, 0
        while hit + BLOCK_TOKENS < len(tokens) and tokens[: hit + BLOCK_TOKENS] in self._cached:
            hit += BLOCK_TOKENS
        table = [self._cached[tokens[:end]] for end in range(BLOCK_TOKENS, hit + 1, BLOCK_TOKENS)]
        self._take(table)
        first = hit - hit % ROW_TOKENS
        stop, by = first, self._random.random()
        while stop + ROW_TOKENS < len(tokens) and (by < 0.2 or tokens[: stop + ROW_TOKENS] in self.book.stored):
            stop += ROW_TOKENS
        need = (stop - hit) // BLOCK_TOKENS
        is_ours = by >= 0.2
        request.table, request.computed = table, hit
        request.life += 1
        if need <= 0 or by > 0.9:
            request.is_running = True
        elif need > len(self._free):
            self._give_back(table)
            request.table = []
            self._waiting.append(request)
            return
        else:
            request.table = table + self._allocate(need, is_ours=is_ours)
            self._fill(request, first if is_ours else hit, hit, stop, is_ours=is_ours)
        self._running.append(request)

    def _fill(self, request: Request, first: int, hit: int, stop: int, *, is_ours: bool) -> None:
        if not is_ours:
            self._sibling_loads.append(Fill(request, hit, stop, tuple(request.table)))
            return
        rows = []
        for start in range(first, stop, ROW_TOKENS):
            name, block = request.tokens[: start + ROW_TOKENS], start // BLOCK_TOKENS
            held = max(hit - start, 0) // BLOCK_TOKENS
            pages = (*[NO_PAGE] * held, *request.table[block + held : block + ROW_PAGES])
            stored = self.book.stored[name]
            self.book.pins[name] = self.book.pins.get(name, 0) + 1
            guards = tuple(0 if page == NO_PAGE else self.guards[page] for page in pages)
            rows.append(RowMove(name, RowCopy(pages, stored.slot, stored.generation), guards))
        self._loads.append(Fill(request, hit, stop, tuple(request.table), tuple(rows)))

    def _unpin(self, fill: Fill) -> None:
        for row in fill.rows:
            self.book.pins[row.tokens] -= 1

    def _grow(self, request: Request, stop: int, busy: set[Request]) -> bool:
        need = -(-stop // BLOCK_TOKENS) - len(request.table)
        if need > len(self._free):
            victims = [
                other for other in self._running if other.is_running and other is not request and other not in busy
            ]
            if victims:
                victim = self._random.choice(victims)
                self._leave(victim)
                self._waiting.append(victim)
        if need > len(self._free):
            return False
        request.table += self._allocate(max(need, 0), is_ours=True)
        return True

    def _complete(self, request: Request, stop: int) -> list[RowMove]:
        """Count tokens as computed; rows and blocks that become full by that."""
        moves = []
        for end in range(request.computed + 1, stop + 1):
            name = request.tokens[:end]
            if end % BLOCK_TOKENS == 0:
                self._cache(name, request.table[end // BLOCK_TOKENS - 1])
            if end % ROW_TOKENS == 0:
                last = end // BLOCK_TOKENS
                pages = tuple(request.table[last - ROW_PAGES : last])
                copy = self.book.grant(name, pages)
                if copy is not None:
                    moves.append(RowMove(name, copy, tuple(self.guards[page] for page in pages)))
        request.computed = stop
        return moves

    # --- blocks -------------------------------------------------------------------------------------------------------
    def _allocate(self, count: int, *, is_ours: bool) -> list[EngineBlockId]:
        blocks = [self._free.pop(self._random.randrange(len(self._free))) for _ in range(count)]
        for block in blocks:
            self._refs[block] = 1
            name = self._names.pop(block, None)
            if name is not None:
                del self._cached[name]
        (self._ours if is_ours else self._others).extend(blocks)
        for block in self._fences.reused(blocks, ()) if is_ours else self._fences.reused((), blocks):
            self.guards[block] += 1
        return blocks

    def _take(self, blocks: Iterable[EngineBlockId]) -> None:
        for block in blocks:
            if not self._refs[block]:
                self._free.remove(block)
            self._refs[block] += 1

    def _give_back(self, blocks: Iterable[EngineBlockId]) -> None:
        for block in blocks:
            self._refs[block] -= 1
            if not self._refs[block]:
                self._free.append(block)
                self.freed.freed([block])

    def _cache(self, name: bytes, block: EngineBlockId) -> None:
        if name not in self._cached and block not in self._names:
            self._cached[name] = block
            self._names[block] = name

    def _leave(self, request: Request) -> None:
        self._running.remove(request)
        self._give_back(request.table)
        request.table, request.computed, request.is_running = [], 0, False
