"""A model of an engine with paged memory: it schedules, preempts, loads and computes, and calls a connector.

Blocks are shared by hash, cached when they are scheduled, and given to others in the order in which they became free.
Steps are scheduled ahead of their execution, and blocks that these may write into are freed after it. What a block
holds is known at any time, whoever wrote it.
Invariants: block 0 is the filler; a block that somebody uses is given to nobody else. Threading: one.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

from blockyard.connectors.vllm.scheduler_half import SchedulerHalf
from blockyard.connectors.vllm.step_plan import StepPlan, StepReport
from blockyard.core.kv_groups import KvGroup

BLOCK_TOKENS = 2
CHUNK = 5
"""Most tokens of one request in one step."""
Content = tuple[int, int, int, int]
"""Group, conversation, place in it, and tokens that are there."""


def block_hash(conversation: int, place: int) -> bytes:
    """Name of a block of a conversation, together with all before it."""
    return sha256(f"{conversation}:{place}".encode()).digest()


@dataclass(eq=False)
class ModelRequest:
    """A request; its output goes on in the conversation as its prompt does."""

    request_id: str
    conversation: int
    num_tokens: int
    target: int
    groups: int
    num_preemptions: int = 0
    kv_transfer_params: Mapping[str, Any] | None = None
    computed: int = 0
    executed: int = 0
    """Tokens that no step in flight writes."""
    loading: bool = False
    received: bool = False
    """Its load ended, and it was not scheduled since."""
    ended: bool = False
    lives: int = 0
    """Changes when a step in flight does not count for it any more."""
    tables: list[list[int]] = field(default_factory=list)

    @property
    def block_hashes(self) -> list[bytes]:
        """Hashes of the whole blocks."""
        return [block_hash(self.conversation, place) for place in range(self.num_tokens // BLOCK_TOKENS)]


@dataclass
class Flight:
    """A step that is not executed yet."""

    plan: StepPlan
    writes: list[tuple[ModelRequest, int, list[list[int]], int, int]]
    """Request, its life, its tables then, first token, token after the last."""


class PagedEngine:
    """The engine."""

    def __init__(self, half: SchedulerHalf, blocks: int, groups: Sequence[KvGroup]) -> None:
        self.half, self.groups = half, groups
        self.content: list[Content | None] = [None] * blocks
        self.free = deque(range(1, blocks))
        self.users = [0] * blocks
        self.cached: dict[bytes, int] = {}
        self.named: dict[int, bytes] = {}
        self.waiting: deque[ModelRequest] = deque()
        self.running: list[ModelRequest] = []
        self.loading: dict[str, ModelRequest] = {}
        self.held: dict[str, ModelRequest] = {}
        self.flights: deque[Flight] = deque()
        self.deferred: deque[tuple[int, list[list[int]]]] = deque()
        """Tables of requests that are gone, to be freed when so many steps are executed: these may write into them."""
        self.scheduled = self.executed = 0
        self.names = 0
        self.on_written: Callable[[StepPlan, StepReport], None] = lambda plan, report: None
        """Called when a step has written, for what its rank does then and says of it."""

    @property
    def requests(self) -> list[ModelRequest]:
        """All that are not ended."""
        return [*self.waiting, *self.running, *(request for request in self.loading.values() if not request.ended)]

    @property
    def rests(self) -> bool:
        """Whether no step follows."""
        return not (self.requests or self.loading or self.held or self.flights or self.half.busy)

    def arrive(self, conversation: int, tokens: int, output: int) -> None:
        """A request comes."""
        self.names += 1
        request = ModelRequest(f"r{self.names}", conversation, tokens, tokens + output, len(self.groups))
        request.tables = [[] for _ in self.groups]
        self.waiting.append(request)
        self.half.on_new_request(request)

    def end(self, request: ModelRequest) -> None:
        """A request is finished or aborted."""
        request.ended = True
        request.lives += 1
        if request in self.waiting:
            self.waiting.remove(request)
        if request in self.running:
            self.running.remove(request)
        if self.half.finished(request.request_id):
            self.held[request.request_id] = request
        elif request.request_id not in self.loading:
            self._free(request)

    def schedule(self) -> None:
        """A step is scheduled."""
        step = SimpleNamespace(
            scheduled_new_reqs=[],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[], resumed_req_ids=set(), new_block_ids=[], num_computed_tokens=[]
            ),
            num_scheduled_tokens={},
            total_num_scheduled_tokens=0,
        )
        writes: list[Any] = []
        if not self._schedule_running(step, writes):
            self._schedule_waiting(step, writes)
        step.total_num_scheduled_tokens = sum(step.num_scheduled_tokens.values())
        self.scheduled += 1
        self.flights.append(Flight(self.half.plan_step(step), writes))

    def execute(self) -> None:
        """The oldest step that is scheduled is carried out, and the scheduler hears of it."""
        flight = self.flights.popleft()
        plan = flight.plan
        self.executed += 1
        while self.deferred and self.deferred[0][0] <= self.executed:
            self._give_all_back(self.deferred.popleft()[1])
        for request, life, tables, start, stop in flight.writes:
            self._write(request, tables, start, stop)
            if request.lives == life:
                request.executed = stop
        report = StepReport()
        if plan.step:
            report.completed(plan.step, 0.001)
        self.on_written(plan, report)
        for name in plan.failed:
            self.loading[name].computed = 0
        for request in self.loading.values():
            self._cut(request, plan.invalid)
        for request, life, _, _, _ in flight.writes:
            if request.lives == life and request.computed >= request.num_tokens:
                request.num_tokens += 1
                if request.num_tokens >= request.target:
                    self.end(request)
        if flight.writes or not report.is_empty or plan.released or plan.received:
            said = None if report.is_empty else report
            self.half.step_ended(said, set(plan.released), set(plan.received))
        for name in plan.received:
            self._is_received(self.loading.pop(name))
        for name in plan.released:
            self._free(self.held.pop(name))

    # --- inside -------------------------------------------------------------------------------------------------------
    def _schedule_running(self, step: Any, writes: list[Any]) -> bool:
        preempted = False
        for request in tuple(self.running):
            tokens = min(CHUNK, request.num_tokens - request.computed)
            if tokens <= 0 or request not in self.running:
                continue
            self._pass_window(request, request.executed)
            while (given := self._grow(request, request.computed + tokens)) is None:
                preempted = True
                victim = self.running[-1]
                self._preempt(victim)
                if victim is request or self.deferred:
                    break  # what is freed later does not help now
            else:
                cached = step.scheduled_cached_reqs
                cached.req_ids.append(request.request_id)
                cached.new_block_ids.append(given if any(given) else None)
                cached.num_computed_tokens.append(request.computed)
                self._scheduled(step, writes, request, tokens)
        return preempted

    def _schedule_waiting(self, step: Any, writes: list[Any]) -> None:
        for request in tuple(self.waiting):
            external = 0
            if not request.received:
                held = self._held_blocks(request)
                matched, _ = self.half.matched_tokens(request, len(held) * BLOCK_TOKENS)
                if matched is None:
                    continue
                external = matched
                for block in held:
                    self._use(block)
                request.tables[0] = held
                request.computed = len(held) * BLOCK_TOKENS
            tokens = external or min(CHUNK, request.num_tokens - request.computed)
            self._pass_window(request, request.computed + external)
            if self._grow(request, request.computed + tokens) is None:
                if not request.received:
                    self._free(request)
                    request.computed = 0
                return
            self.waiting.remove(request)
            request.executed = request.computed
            self.half.allocated(request, tuple(request.tables), external)
            if external:
                request.computed += external
                self.loading[request.request_id] = request
                continue
            request.received = False
            self.running.append(request)
            if request.num_preemptions:
                cached = step.scheduled_cached_reqs
                cached.req_ids.append(request.request_id)
                cached.resumed_req_ids.add(request.request_id)
                cached.new_block_ids.append(tuple(request.tables))
                cached.num_computed_tokens.append(request.computed)
            else:
                step.scheduled_new_reqs.append(
                    SimpleNamespace(req_id=request.request_id, num_computed_tokens=request.computed)
                )
            self._scheduled(step, writes, request, tokens)

    def _scheduled(self, step: Any, writes: list[Any], request: ModelRequest, tokens: int) -> None:
        step.num_scheduled_tokens[request.request_id] = tokens
        start, request.computed = request.computed, request.computed + tokens
        tables = [list(table) for table in request.tables]
        writes.append((request, request.lives, tables, start, request.computed))
        if len(self.groups) == 1:
            for place in range(request.computed // BLOCK_TOKENS):
                name, block = block_hash(request.conversation, place), request.tables[0][place]
                if name not in self.cached:
                    self.cached[name], self.named[block] = block, name

    def _held_blocks(self, request: ModelRequest) -> list[int]:
        held: list[int] = []
        if len(self.groups) == 1:
            for name in request.block_hashes[: (request.num_tokens - 1) // BLOCK_TOKENS]:
                if name not in self.cached:
                    break
                held.append(self.cached[name])
        return held

    def _pass_window(self, request: ModelRequest, computed: int) -> None:
        """Blocks that a window has passed become the filler, those that are there and those to come."""
        for group, table in zip(self.groups, request.tables, strict=True):
            if not group.window_tokens:
                continue
            passed = max(0, computed - group.window_tokens + 1) // BLOCK_TOKENS
            for place in range(min(passed, len(table))):
                self._give_back(table[place])
                table[place] = 0
            table += [0] * (passed - len(table))

    def _grow(self, request: ModelRequest, tokens: int) -> tuple[list[int], ...] | None:
        blocks = -(-tokens // BLOCK_TOKENS)
        missing = [max(0, blocks - len(table)) for table in request.tables]
        if sum(missing) > len(self.free):
            return None
        given = tuple([self._take() for _ in range(count)] for count in missing)
        for table, new in zip(request.tables, given, strict=True):
            table += new
        return given

    def _preempt(self, request: ModelRequest) -> None:
        self.running.remove(request)
        self._free(request)
        request.computed = 0
        request.num_preemptions += 1
        request.lives += 1
        self.waiting.appendleft(request)

    def _cut(self, request: ModelRequest, invalid: frozenset[int]) -> None:
        bad = [place for table in request.tables for place, block in enumerate(table) if block in invalid]
        if bad:
            request.computed = min(request.computed, min(bad) * BLOCK_TOKENS)

    def _is_received(self, request: ModelRequest) -> None:
        if request.ended:
            self._free(request)
            return
        if request.computed:
            request.received = True
            request.computed = min(request.computed, request.num_tokens - 1)
        else:
            self._free(request)
        self.waiting.appendleft(request)

    def _write(self, request: ModelRequest, tables: list[list[int]], start: int, stop: int) -> None:
        for group, table in enumerate(tables):
            for place in range(start // BLOCK_TOKENS, -(-stop // BLOCK_TOKENS)):
                if block := table[place]:
                    filled = min(BLOCK_TOKENS, stop - place * BLOCK_TOKENS)
                    self.content[block] = (group, request.conversation, place, filled)

    def _take(self) -> int:
        block = self.free.popleft()
        if (name := self.named.pop(block, None)) is not None:
            del self.cached[name]
        self.users[block] = 1
        return block

    def _use(self, block: int) -> None:
        if not self.users[block]:
            self.free.remove(block)
        self.users[block] += 1

    def _give_back(self, block: int) -> None:
        if block:
            self.users[block] -= 1
            if not self.users[block]:
                self.free.append(block)

    def _free(self, request: ModelRequest) -> None:
        tables, request.tables = request.tables, [[] for _ in self.groups]
        if self.flights:
            self.deferred.append((self.scheduled, tables))
        else:
            self._give_all_back(tables)

    def _give_all_back(self, tables: list[list[int]]) -> None:
        for table in tables:
            for block in reversed(table):
                self._give_back(block)
