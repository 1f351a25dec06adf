"""Scheduler half of the connector: decides for each request what is loaded and stored, and never waits.

::

    on_new_request -> lookup asked      get_num_new_matched_tokens -> None until it is answered, then the hit
    update_state_after_alloc -> guards of new blocks raised, load planned
    build_connector_meta -> reused blocks reported, loads begun, complete rows listed, ends passed to the ranks
    update_connector_output -> rows of completed steps registered      request_finished -> held while they are stored

Loads are always asynchronous. Their ends, the answers and everything else come as news from the client's thread, and
are taken at every call.
Invariants: before a step runs, the guards of all blocks that it writes for the first time are raised and the node has
been told of their reuse ahead of anything else; a request whose load began is reported received exactly once, when no
write can follow; only ids that are held are reported released. Whatever goes wrong with the node becomes a miss.
Threading: the engine's scheduler thread. Nothing here blocks: dictionaries, deques, and an array operation per table.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, Protocol, final

from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.vllm.admission import Admission
from blockyard.connectors.vllm.block_tables import GivenBlocks
from blockyard.connectors.vllm.connector_counts import ConnectorCounts
from blockyard.connectors.vllm.node_calls import (
    LoadEnded,
    LookupAnswered,
    NodeCalls,
    NodeState,
    RowsAnnounced,
    StoresSettled,
)
from blockyard.connectors.vllm.request_tables import RequestTables
from blockyard.connectors.vllm.row_loads import LoadOutcome, RowLoads
from blockyard.connectors.vllm.row_stores import RowStores
from blockyard.connectors.vllm.settings import ConnectorSettings, opted_out
from blockyard.connectors.vllm.slot_desk import SlotDesk
from blockyard.connectors.vllm.slot_stores import SlotStores
from blockyard.connectors.vllm.staged_copies import StagedCopies
from blockyard.connectors.vllm.step_plan import NO_COPIES, NOTHING, StepPlan, StepReport
from blockyard.connectors.vllm.tracked_request import EngineFacts, EngineRequest, TrackedRequest
from blockyard.core.cost import CostModel
from blockyard.core.vocabulary import Tier

_LEAST_PREFILL_TOKENS: Final = 32


class ScheduledStep(Protocol):
    """What the engine scheduled for one step."""

    scheduled_new_reqs: Sequence[Any]
    scheduled_cached_reqs: Any
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int


@final
class SchedulerHalf:
    """One engine's scheduler half."""

    def __init__(
        self,
        settings: ConnectorSettings,
        facts: EngineFacts,
        guards: EngineGuards,
        calls: NodeCalls,
        *,
        copies: bool = False,
        cost: CostModel | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with no requests; guards and calls are owned from here on, and the ranks copy where ``copies``."""
        self._settings = settings
        self._facts = facts
        self._guards = guards
        self._calls = calls
        self._cost = cost or CostModel()
        self._clock = clock
        self.counts = ConnectorCounts()
        self._desk = self._new_desk() if copies else None
        self._tables = RequestTables(facts, guards, None if self._desk is None else self._desk.reused)
        self._stores = RowStores(facts, guards, calls, None if self._desk is None else self._desk.stores.complete)
        self._admission = Admission(settings, facts, calls, self._cost, self.counts, lambda: self._clock())
        loader = self._desk or calls
        self._loads = RowLoads(
            settings,
            facts,
            guards,
            loader,
            self._stores,
            self._cost,
            self.counts,
            lambda: self._clock(),
            by_worker=not copies,
        )
        self._requests: dict[str, TrackedRequest] = {}
        self._ended = StepPlan()
        self._releasing: set[str] = set()
        self._receiving: set[str] = set()
        """Ends that the ranks have yet to tell the engine."""
        self._held: dict[str, TrackedRequest] = {}
        self._prefills: dict[int, tuple[int, int]] = {}
        self._step = 0
        self._is_node_away = False

    # --- admission ----------------------------------------------------------------------------------------------------
    def on_new_request(self, request: EngineRequest) -> None:
        """A request arrived: its lookup begins."""
        self._tracked(request)

    def matched_tokens(self, request: EngineRequest, local_tokens: int) -> tuple[int | None, bool]:
        """Tokens to load beyond the local ones; None while the answer is awaited. May be asked again and again."""
        self._take_news()
        tracked = self._tracked(request)
        tracked.admitting, tracked.local_tokens = True, local_tokens
        if request.num_preemptions > tracked.preemptions:
            tracked.preemptions, tracked.declined = request.num_preemptions, False
            self._admission.ask(tracked)
        hit = self._admission.hit(tracked)
        if hit is None:
            return None, False
        tracked.hit = hit
        if hit.tokens:
            self._admission.lease(tracked, hit)
        return hit.tokens, hit.tokens > 0

    def allocated(self, request: EngineRequest, blocks: tuple[GivenBlocks, ...], external_tokens: int) -> None:
        """The engine allocated; ``blocks`` are the whole tables of the request, per group."""
        tracked = self._tracked(request)
        admitting, tracked.admitting = tracked.admitting, False
        shorter = any(len(given) < len(table) for given, table in zip(blocks, tracked.tables, strict=True))
        if admitting or shorter:
            local = tracked.local_tokens if admitting else 0
            self._tables.begin(tracked, blocks, local, by_others=external_tokens == 0)
        else:
            self._tables.extend(tracked, blocks, by_others=external_tokens == 0)
        if not admitting:
            return
        self._admission.decide(tracked, external_tokens)
        if external_tokens > 0:
            self._loads.plan(tracked, external_tokens)
        else:
            self._admission.release(tracked)

    # --- the step -----------------------------------------------------------------------------------------------------
    def plan_step(self, scheduled: ScheduledStep) -> StepPlan:
        """Everything that this step needs, in the order in which the node has to hear of it."""
        self._take_news()
        self._tables.grow(scheduled.scheduled_cached_reqs, self._requests.get)
        if reused := self._tables.take_reused():
            self._calls.deregister(reused)
        self._loads.begin()
        self._admission.report()
        step = self._list_rows(scheduled)
        self._release_held()
        copies = NO_COPIES if self._desk is None else self._desk.plan(idle=not self._requests)
        # The end of what orders anything, and of what may be at fault: ends taken for the plan have to be told with it.
        self._calls.flush()
        idle = not scheduled.total_num_scheduled_tokens
        waiting = idle and bool(self._loads or self._held or self._requests or self._is_copying)
        ended, self._ended = self._ended, NOTHING
        self._releasing |= ended.released
        return StepPlan(
            step=step,
            released=ended.released,
            received=ended.received,
            failed=ended.failed,
            invalid=ended.invalid,
            waiting=waiting,
            copies=copies,
        )

    def step_ended(self, report: StepReport | None, sent: set[str], received: set[str]) -> None:
        """Ranks have said what they did, and told the engine of these ends."""
        self._take_news()
        self._releasing -= sent
        self._receiving -= received
        if report is not None:
            self._reported(report)
        self._flush_at_rest()

    # --- the end of a request -----------------------------------------------------------------------------------------
    def finished(self, request_id: str) -> bool:
        """A request finished or was aborted; whether its blocks are kept until it is reported released."""
        self._take_news()
        tracked = self._requests.pop(request_id, None)
        if self._desk is not None and not self._requests:
            self._desk.stores.rest()
        if tracked is not None:
            tracked.finished = True
            self._admission.release(tracked)
        self._flush_at_rest()
        if tracked is None or tracked.load or request_id in self._receiving:
            return False  # of a load, the engine itself keeps the blocks until the request is reported received
        if not tracked.storing or not self._settings.hold_ms:
            return False
        tracked.held_until = self._clock() + self._settings.hold_ms / 1_000
        self._held[request_id] = tracked
        return True

    def _flush_at_rest(self) -> None:
        """What was ordered begins with the next step, while the engine computes; unless there may be none."""
        if not self._requests:
            self._calls.flush()

    @property
    def busy(self) -> bool:
        """Whether the engine has to go on stepping although it has nothing to compute."""
        told = self._releasing or self._receiving or not self._ended.is_empty
        return bool(self._loads or self._held or told or self._is_copying)

    def reset(self) -> None:
        """The engine dropped its prefix cache together with ours."""
        self._guards.raise_all()
        self._calls.reset()
        self._calls.flush()

    def slowest_source(self, request_id: str) -> Tier:
        """Slowest tier of what is loaded for this request."""
        tracked = self._requests.get(request_id)
        labels = () if tracked is None or tracked.hit is None else tracked.hit.found_tokens
        return max((tier for tier in Tier if tier.label in labels), default=Tier.G2)

    def last_ends(self) -> StepPlan:
        """Ends that are still to be told after ``give_up``; each once."""
        ended, self._ended = self._ended, NOTHING
        return ended if self._desk is None else replace(ended, copies=self._desk.give_up())

    def give_up(self) -> None:
        """After a fault of ours: nothing is stored or loaded any more, and nobody waits for us."""
        self._guards.raise_all()
        self._calls.close()
        self._stores.forget()
        if self._desk is not None:
            self._desk.give_up()
        self._tell(self._loads.give_up())  # see there for what a worker may still do
        self._end(released=set(self._held))
        self._held.clear()

    def close(self) -> None:
        """End the thread of the client."""
        self._calls.close()
        self._guards.close()

    @property
    def _is_copying(self) -> bool:
        return self._desk is not None and self._desk.busy

    def _new_desk(self) -> SlotDesk:
        counts, slots = self.counts, self._calls.slots
        hold_seconds = self._settings.hold_ms / 1_000

        def clock() -> float:
            return self._clock()

        stores = SlotStores(self._facts, self._guards, slots, counts.stored, counts.skipped, hold_seconds, clock)
        return SlotDesk(self._facts.ranks, stores, StagedCopies(slots, clock), self._calls.news.append)

    # --- inside: admission --------------------------------------------------------------------------------------------
    def _tracked(self, request: EngineRequest) -> TrackedRequest:
        tracked = self._requests.get(request.request_id)
        if tracked is None:
            tracked = TrackedRequest(request, opted_out(request.kv_transfer_params))
            tracked.preemptions = request.num_preemptions
            tracked.tables = self._tables.new(0)
            tracked.next_row = [0] * len(self._facts.groups)
            self._requests[request.request_id] = tracked
            self._admission.ask(tracked)
        return tracked

    def _end(
        self,
        *,
        released: set[str] | None = None,
        received: set[str] | None = None,
        failed: set[str] | None = None,
        invalid: set[int] | None = None,
    ) -> None:
        """Have the ranks tell the engine with the next step."""
        ended = self._ended
        self._ended = StepPlan(
            released=ended.released | (released or set()),
            received=ended.received | (received or set()),
            failed=ended.failed | (failed or set()),
            invalid=ended.invalid | (invalid or set()),
        )

    # --- inside: the step ---------------------------------------------------------------------------------------------
    def _list_rows(self, scheduled: ScheduledStep) -> int:
        """Number of this step where its completion is awaited, else 0."""
        self._step += 1
        cached, scheduled_tokens = scheduled.scheduled_cached_reqs, scheduled.num_scheduled_tokens
        awaited = False
        longest, longest_start = 0, 0
        block_tokens = self._facts.block_tokens
        news = ((new.req_id, new.num_computed_tokens) for new in scheduled.scheduled_new_reqs)
        for request_id, start in chain(zip(cached.req_ids, cached.num_computed_tokens, strict=True), news):
            tracked, tokens = self._requests.get(request_id), scheduled_tokens.get(request_id, 0)
            if tracked is None:
                continue
            if tokens > longest:
                longest, longest_start = tokens, start
            # Groups go along together: most requests of most steps fill no row, and are done with here.
            if (start + tokens) // block_tokens <= tracked.next_row[0] or tracked.opted_out:
                continue
            if self._stores.list_complete(self._step, tracked, start + tokens):
                awaited = True
        # One prompt, and next to nothing beside it: only then the step says what its tokens cost.
        if longest >= _LEAST_PREFILL_TOKENS and scheduled.total_num_scheduled_tokens - longest <= longest // 16:
            self._prefills[self._step] = (longest_start, longest)
            awaited = True
        return self._step if awaited else 0

    def _reported(self, report: StepReport) -> None:
        if self._desk is not None:
            self._desk.reported(report)
        for step in self._stores.reported(report):
            prefill = self._prefills.pop(step, None)
            if prefill is not None:
                self._cost.observe_prefill(prefill[0], prefill[1], report.seconds[step])

    def _release_held(self) -> None:
        now = self._clock()
        released = {
            request_id
            for request_id, tracked in self._held.items()
            if not tracked.storing or (tracked.held_until is not None and now >= tracked.held_until)
        }
        for request_id in released:
            del self._held[request_id]
        if released:
            self._end(released=released)

    def _take_news(self) -> None:
        news = self._calls.news
        while news:
            item = news.popleft()
            if isinstance(item, LookupAnswered):
                self._admission.answered(self._requests.get(item.request), item)
            elif isinstance(item, LoadEnded):
                self._tell(self._loads.ended(item))
            elif isinstance(item, StoresSettled):
                self._stores.settled(item.ticket)
            elif isinstance(item, RowsAnnounced):
                self.counts.registered(item.rows)
            elif isinstance(item, NodeState):
                self._admission.loading, self._is_node_away = item.loading, not item.connected
                if self._desk is not None:
                    self._desk.connected(connected=item.connected)
            elif self._desk is not None:
                self._desk.heard(item)
        if self._loads and (self._is_node_away or not self._calls.alive):
            self._tell(self._loads.orphans())

    def _tell(self, outcomes: list[LoadOutcome]) -> None:
        """Loads have ended: the ranks tell the engine with the next step."""
        for outcome in outcomes:
            name = outcome.tracked.request_id
            self._admission.release(outcome.tracked)
            self._receiving.add(name)
            self._end(received={name}, failed={name} if outcome.failed else set(), invalid=set(outcome.invalid))
