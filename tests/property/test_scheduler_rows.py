"""The scheduler's half with a model engine, its real orders, and a client whose thread runs and answers at any time.

Whatever happens in between: while all guards of an announced row are those with which it was announced, its blocks hold
what its name says; every registration is settled once; what was ordered has begun when the engine rests; and nothing is
loaded into a block that the node still has under a name.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.paged_engine import BLOCK_TOKENS, Content, PagedEngine, block_hash
from tests.unit.connectors.vllm.client_turns import Load, Registration, calls_in_turns

from blockyard.connectors.engine_description import EngineDescription
from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.slot_calls import StagedLoad
from blockyard.connectors.vllm.scheduler_half import SchedulerHalf
from blockyard.connectors.vllm.settings import ConnectorSettings
from blockyard.connectors.vllm.step_plan import StepPlan, StepReport
from blockyard.connectors.vllm.tracked_request import EngineFacts
from blockyard.core.chain_run import ChainRun
from blockyard.core.engine_names import EngineNames
from blockyard.core.errors import RequestError, UnavailableError
from blockyard.core.identity import ModelIdentity
from blockyard.core.kv_groups import NO_PAGE, GroupKind, KvGroup
from blockyard.core.vocabulary import (
    Availability,
    BlockId,
    EngineBlockId,
    EngineId,
    Generation,
    GroupId,
    ItemStatus,
    LoadId,
    Tier,
)

_BLOCKS = 15
_ROW_TOKENS = 4
_PER_ROW = _ROW_TOKENS // BLOCK_TOKENS
_CONVERSATIONS = 3
_LONGEST = 15
_SLOTS = 6
_A_CONVERSATION = st.integers(0, _CONVERSATIONS - 1)
_IDENTITY = ModelIdentity(model="m", block_tokens=_ROW_TOKENS, engine_block_tokens=BLOCK_TOKENS)
_NAMES = EngineNames(_IDENTITY.digest())
_ROWS = {
    _NAMES.digest(block_hash(conversation, (row + 1) * _PER_ROW - 1)): (conversation, row)
    for conversation in range(_CONVERSATIONS)
    for row in range(_LONGEST)
}
_FULL = KvGroup(engine_block_tokens=BLOCK_TOKENS)
_WINDOW = KvGroup(
    group=GroupId(1), kind=GroupKind.SLIDING_WINDOW, engine_block_tokens=BLOCK_TOKENS, window_tokens=_ROW_TOKENS
)
_OK, _CORRUPT, _SKIPPED = ItemStatus.OK, ItemStatus.CORRUPT, ItemStatus.SKIPPED


@dataclass(frozen=True)
class _Row:
    pages: tuple[int, ...]
    guards: tuple[int, ...]
    contents: tuple[Content, ...]


class SchedulerRows(RuleBasedStateMachine):
    """See the module."""

    @initialize(windows=st.booleans(), hold_ms=st.sampled_from((0, 200)), copies=st.booleans())
    def begin(self, windows: bool, hold_ms: int, copies: bool) -> None:
        groups = (_FULL, _WINDOW) if windows else (_FULL,)
        self.guards = EngineGuards(_BLOCKS)
        described = EngineDescription(engine=EngineId("e"), identity=_IDENTITY, blocks=_BLOCKS, groups=groups)
        self.calls, self.client, self.thread = calls_in_turns(described, self.guards)
        self.client.on_register, self.client.on_load = self._announced, self._load_begins
        self.client.on_deregister, self.client.on_reset = self._deregistered, self._reset
        self.client.holds = self._holds
        self.now = 0.0
        facts = EngineFacts(
            groups=groups, block_tokens=_ROW_TOKENS, hash_tokens=BLOCK_TOKENS, row_bytes=len(groups), ranks=1
        )
        self.half = SchedulerHalf(
            ConnectorSettings(socket=Path("/nowhere"), block_tokens=_ROW_TOKENS, hold_ms=hold_ms, weigh_loads=False),
            facts,
            self.guards,
            self.calls,
            copies=copies,
            clock=lambda: self.now,
        )
        self.engine = PagedEngine(self.half, _BLOCKS, groups)
        self.engine.on_written = self._written
        self.copies = copies
        self.slots: dict[int, tuple[Content | None, ...]] = {}
        self.lives, self.staged, self.wrong = 0, 0, 0
        self.client.on_commit, self.client.on_stage = self._committed, self._stage
        self._new_life()
        self.rows: dict[int, _Row] = {}
        """Rows that the node has, under each of their pages."""
        self.named: set[int] = set()
        """Blocks that something was loaded into while the node had them under a name."""
        self.registrations: Counter[int] = Counter()
        self.settled: Counter[int] = Counter()
        self._count_tickets()

    # --- the engine ---------------------------------------------------------------------------------------------------
    @precondition(lambda self: len(self.engine.requests) < 4)
    @rule(requests=st.lists(st.tuples(_A_CONVERSATION, st.integers(3, 9), st.integers(1, 6)), min_size=1, max_size=3))
    def arrive(self, requests: list[tuple[int, int, int]]) -> None:
        for request in requests:
            self.engine.arrive(*request)

    @precondition(lambda self: len(self.engine.flights) < 2 and not self.engine.rests)
    @rule()
    def schedule(self) -> None:
        self.engine.schedule()

    @precondition(lambda self: self.engine.flights)
    @rule()
    def execute(self) -> None:
        self.engine.execute()

    @precondition(lambda self: not self.engine.rests and len(self.engine.flights) < 2)
    @rule(rounds=st.integers(1, 8), turns=st.booleans())
    def run(self, rounds: int, turns: bool) -> None:
        for _ in range(rounds):
            if turns:
                self.thread.turn()
            self.engine.schedule()
            self.engine.execute()

    @precondition(lambda self: self.engine.requests)
    @rule(data=st.data())
    def abort(self, data: Any) -> None:
        self.engine.end(data.draw(st.sampled_from(self.engine.requests)))

    @rule(kind=st.sampled_from(("time goes by", "the cache is dropped", "the connection is lost")))
    def something_happens(self, kind: str) -> None:
        if kind == "time goes by":
            self.now += 0.11
        elif kind == "the cache is dropped":
            self.half.reset()
        else:
            self.client.tickets.settle_all()
            self.client.on_state(False)
            self._new_life()

    # --- the node -----------------------------------------------------------------------------------------------------
    @rule()
    def turn(self) -> None:
        self.thread.turn()

    @precondition(lambda self: self.client.registrations)
    @rule(data=st.data(), outcome=st.sampled_from(("heard", "away", "refused")))
    def answer(self, data: Any, outcome: str) -> None:
        registration = data.draw(st.sampled_from(self.client.registrations))
        self.client.registrations.remove(registration)
        if outcome == "heard":
            registration.answer.set_result(None)
        elif outcome == "away":
            registration.answer.set_exception(UnavailableError("away"))
        else:
            self._forget(registration.pages)
            registration.answer.set_exception(RequestError("refused"))

    @precondition(lambda self: self.client.tickets._open)
    @rule(data=st.data())
    def settle(self, data: Any) -> None:
        self.client.settle(data.draw(st.sampled_from(sorted(self.client.tickets._open))))

    @precondition(lambda self: self.client.loads)
    @rule(data=st.data(), good=st.integers(0, 3))
    def end_load(self, data: Any, good: int) -> None:
        load = data.draw(st.sampled_from(self.client.loads))
        self._end_load(load, good)

    @rule()
    def work(self) -> None:
        """The node answers everything at once."""
        self.thread.turn()
        self._answer_all()
        self.thread.turn()

    # --- what has to hold ---------------------------------------------------------------------------------------------
    @invariant()
    def rows_hold_what_their_names_say(self) -> None:
        for row in set(self.rows.values()):
            if self._guards_of(row.pages) == row.guards:
                assert tuple(self.engine.content[page] for page in row.pages) == row.contents

    @invariant()
    def what_was_ordered_begins_before_a_rest(self) -> None:
        if self.engine.rests:
            assert self.thread.is_awake or not self.thread.posted

    @invariant()
    def loads_begin_when_the_node_has_heard_of_the_reuse(self) -> None:
        assert not self.named

    @invariant()
    def slots_hold_what_they_are_committed_as(self) -> None:
        assert not self.wrong

    @invariant()
    def nothing_is_settled_twice(self) -> None:
        assert all(count == 1 for count in self.settled.values())
        assert self.settled.keys() <= self.registrations.keys()

    def teardown(self) -> None:
        for request in self.engine.requests:
            self.engine.end(request)
        for _ in range(100):
            self.work()
            self.now += 0.3
            self.client.tickets.settle_all()
            if self.engine.rests:
                break
            if not self.engine.flights:
                self.engine.schedule()
            self.engine.execute()
        self.what_was_ordered_begins_before_a_rest()
        self.half.finished("nobody")  # takes the last news
        assert self.engine.rests
        self.thread.turn()
        assert len(self.client.slots) + len(self.client.returned) == _SLOTS, "a slot is held for ever"
        assert self.settled == self.registrations
        assert (self.calls._unsettled, self.calls._ticket_of, self.half._stores._listed) == ({}, {}, {})
        assert not any(self.engine.users[1:]), "a block is held for ever"
        assert all(isinstance(fault, RequestError) and fault.detail == "refused" for fault in self.thread.faults)
        self.half.close()

    # --- inside -------------------------------------------------------------------------------------------------------
    def _new_life(self) -> None:
        """The node has the engine anew; nothing of before is good for anything."""
        self.lives += 1
        self.client.slots = [100 * self.lives + slot for slot in range(_SLOTS)]
        self.client.returned.clear()
        self.client.on_state(True)

    def _written(self, plan: StepPlan, report: StepReport) -> None:
        """The rank of the engine copies when a step has written."""
        self.rows_hold_what_their_names_say()
        self.now += 0.011
        content = self.engine.content
        if self.copies and self.engine.executed == 1:
            report.attachments[0] = 1
        for order in plan.copies.stores:
            for row in order.rows:
                self.slots[row.slot] = tuple(content[page] for page in row.pages)
            report.copied(0, order.number, (_OK,) * len(order.rows))
        for order in plan.copies.loads:
            for row in order.rows:
                for page, held in zip(row.pages, self.slots[row.slot], strict=True):
                    if page != NO_PAGE:
                        content[page] = held
            report.copied(0, order.number, (_OK,) * len(order.rows))

    def _committed(self, slots: Sequence[int], run: ChainRun, group: int) -> None:
        for index, slot in enumerate(slots):
            self.wrong += self.slots[slot] != _contents(run, index, group)

    def _stage(self, run: ChainRun, group: int) -> StagedLoad:
        slots = []
        for index in range(len(run)):
            self.staged -= 1
            self.slots[self.staged] = _contents(run, index, group)
            slots.append(BlockId(self.staged))
        rows = len(run)
        return StagedLoad(LoadId(1), (_OK,) * rows, (Tier.G2,) * rows, tuple(slots), (Generation(1),) * rows)

    def _answer_all(self) -> None:
        self.client.slots += self.client.returned
        self.client.returned.clear()
        for registration in self.client.registrations:
            registration.answer.set_result(None)
        self.client.registrations.clear()
        for load in tuple(self.client.loads):
            self._end_load(load, 9)

    def _count_tickets(self) -> None:
        register, settled = self.calls.register, self.half._stores.settled

        def counted_register(rows: Any, ticket: int) -> None:
            self.registrations[ticket] += 1
            register(rows, ticket)

        def counted_settled(ticket: int) -> None:
            self.settled[ticket] += 1
            settled(ticket)

        self.calls.register = counted_register  # type: ignore[method-assign]
        self.half._stores.settled = counted_settled  # type: ignore[method-assign]

    def _holds(self, run: ChainRun, index: int) -> Availability:
        conversation, _ = _ROWS[run.digest(index)]
        return Availability.G2 if conversation else Availability.MISS

    def _announced(self, registration: Registration) -> None:
        self._forget(registration.pages)
        for index in range(len(registration.run)):
            places = slice(index * _PER_ROW, (index + 1) * _PER_ROW)
            contents = _contents(registration.run, index, registration.group)
            made = _Row(tuple(registration.pages[places]), tuple(registration.guards[places]), contents)
            assert 0 not in made.pages
            self.rows |= dict.fromkeys(made.pages, made)
        self.rows_hold_what_their_names_say()

    def _load_begins(self, load: Load) -> None:
        self.named |= self.rows.keys() & set(load.pages)

    def _deregistered(self, blocks: Any) -> None:
        assert 0 not in blocks
        assert len(set(blocks)) == len(blocks)
        for block in blocks:
            if (row := self.rows.get(block)) is not None:
                noted = row.guards[row.pages.index(block)]
                assert self._guards_of([block]) != (noted,), "the client would refuse, and the node keep the row"
        self._forget(blocks)

    def _reset(self) -> None:
        self.rows.clear()

    def _forget(self, blocks: Any) -> None:
        for block in blocks:
            if (row := self.rows.get(block)) is not None:
                for page in row.pages:
                    del self.rows[page]

    def _guards_of(self, pages: Any) -> tuple[int, ...]:
        return tuple(int(self.guards.guard(EngineBlockId(page))) for page in pages)

    def _end_load(self, load: Load, good: int) -> None:
        """The worker writes rows whose guards are as they were, then comes one that is damaged on its way, if any."""
        self.client.loads.remove(load)
        statuses = []
        for index in range(len(load.run)):
            conversation, row = _ROWS[load.run.digest(index)]
            places = range(index * _PER_ROW, (index + 1) * _PER_ROW)
            pages = {place - places.start: load.pages[place] for place in places if load.pages[place] != NO_PAGE}
            noted = tuple(load.guards[place] for place in places if load.pages[place] != NO_PAGE)
            if self._guards_of(pages.values()) != noted:
                statuses.append(_SKIPPED)
                continue
            statuses.append(_OK if index < good else _CORRUPT)
            for part, page in pages.items():
                place = row * _PER_ROW + part
                self.engine.content[page] = (load.group, conversation, place, BLOCK_TOKENS) if index < good else None
        sources = tuple(Tier.G2 if status is _OK else None for status in statuses)
        if not load.answer.done():
            load.answer.set_result(LoadResult(tuple(statuses), sources))


def _contents(run: ChainRun, index: int, group: int) -> tuple[Content, ...]:
    """What a row holds that has this name."""
    conversation, row = _ROWS[run.digest(index)]
    assert run.first_position + index == row
    return tuple((group, conversation, row * _PER_ROW + part, BLOCK_TOKENS) for part in range(_PER_ROW))


TestSchedulerRows = SchedulerRows.TestCase
TestSchedulerRows.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    suppress_health_check=[HealthCheck.too_slow],  # an example is a hundred steps of an engine
)
