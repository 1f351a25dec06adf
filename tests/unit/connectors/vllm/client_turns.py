"""The real orders and names of the connector, with a client that tests script and a thread that runs when they say so.

Invariants: nothing runs but within ``turn``; orders begin as they would in the thread: all that was posted, once
somebody has woken it. Threading: one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from blockyard.connectors.engine_description import EngineDescription
from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.slot_calls import StagedLoad, StoreGrant
from blockyard.connectors.store_tickets import StoreTickets
from blockyard.connectors.vllm import node_calls
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import BlockyardError
from blockyard.core.vocabulary import Availability, BlockId, Generation, LoadId

_ENOUGH = 25
"""Rounds of the loop after which every call has come to where it waits for an answer."""
_NOWHERE = StagedLoad(LoadId(0), (), (), (), ())


@dataclass
class Registration:
    """A call that waits for its answer."""

    run: ChainRun
    pages: list[int]
    guards: list[int]
    group: int
    ticket: int
    answer: asyncio.Future[None]


@dataclass
class Load:
    """The same."""

    request: str
    run: ChainRun
    pages: list[int]
    guards: list[int]
    group: int
    answer: asyncio.Future[LoadResult]


@dataclass
class TurnClient:
    """Keeps calls until the test answers them, where an answer matters."""

    on_state: Callable[[bool], None]
    on_stores_settled: Callable[[int], None]
    registrations: list[Registration] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """Names of calls, in order."""
    on_register: Callable[[Registration], None] = lambda registration: None
    on_commit: Callable[[Sequence[int], ChainRun, int], None] = lambda slots, run, group: None
    on_stage: Callable[[ChainRun, int], StagedLoad] = lambda run, group: _NOWHERE
    on_load: Callable[[Load], None] = lambda load: None
    on_reset: Callable[[], None] = lambda: None
    on_deregister: Callable[[Sequence[int]], None] = lambda blocks: None
    holds: Callable[[ChainRun, int], Availability] = lambda run, index: Availability.MISS
    unsettled_blocks: frozenset[int] = frozenset()
    slots: list[int] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tickets = StoreTickets(self.on_stores_settled)

    async def lookup(self, run: ChainRun, *, groups: Sequence[int], remote_wait_seconds: float) -> Any:
        self.told.append("lookup")
        return tuple(tuple(self.holds(run, index) for index in range(len(run))) for _ in groups)

    async def register(self, run: ChainRun, pages: list[int], *, group: int, guards: list[int], ticket: int) -> None:
        self.told.append("register")
        self.tickets.open(ticket)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        registration = Registration(run, pages, guards, group, ticket, answer)
        self.registrations.append(registration)
        self.on_register(registration)
        try:
            await answer
        except BaseException:
            self.tickets.settle(ticket)
            raise

    def settle(self, ticket: int) -> None:
        """No store of this registration is wanted."""
        self.tickets.settle(ticket)

    async def load(
        self, request: str, run: ChainRun, pages: list[int], *, group: int, ttl_seconds: float, guards: list[int]
    ) -> LoadResult:
        self.told.append("load")
        answer: asyncio.Future[LoadResult] = asyncio.get_running_loop().create_future()
        load = Load(request, run, pages, guards, group, answer)
        self.loads.append(load)
        self.on_load(load)
        return await answer

    async def deregister(self, blocks: Sequence[int]) -> None:
        self.told.append("deregister")
        self.on_deregister(blocks)

    async def reset(self) -> None:
        self.told.append("reset")
        self.on_reset()

    async def reserve(self, request: str, run: ChainRun, *, groups: Sequence[int], ttl_seconds: float) -> None:
        self.told.append("reserve")

    async def release(self, request: str) -> None:
        self.told.append("release")

    async def report_decisions(self, decisions: Sequence[object]) -> None:
        self.told.append("report")

    async def reserve_store(self, count: int) -> StoreGrant:
        taken, self.slots = self.slots[:count], self.slots[count:]
        return StoreGrant(1, tuple(map(BlockId, taken)), (Generation(1),) * len(taken))

    async def abort_store(self, grant: int, slots: Sequence[BlockId]) -> None:
        self.returned += slots

    async def commit_store(
        self, grant: int, slots: Sequence[BlockId], run: ChainRun, *, group: int, shards: int
    ) -> None:
        self.on_commit(slots, run, group)
        self.returned += slots

    async def stage_load(self, request: str, run: ChainRun, *, group: int, ttl_seconds: float) -> StagedLoad:
        return self.on_stage(run, group)

    async def close_load(self, load: int) -> None:
        self.told.append("close")


class TurnThread:
    """In the place of ``ClientThread``."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Any]], name: str) -> None:
        self._connect = connect
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: Any = None
        self.posted: deque[Callable[[Any], Awaitable[None]]] = deque()
        self.is_awake = False
        self.faults: list[Exception] = []
        self._unexpected: list[Exception] = []
        self.alive = False

    def start(self) -> None:
        self._client = self._loop.run_until_complete(self._connect().__aenter__())
        self.alive = True

    def post(self, call: Callable[[Any], Awaitable[None]], *, wake: bool = True) -> None:
        self.posted.append(call)
        self.is_awake |= wake

    def flush(self) -> None:
        self.is_awake |= bool(self.posted)

    def turn(self) -> None:
        """What the thread does until every call waits for an answer."""
        if self.is_awake:
            self.is_awake = False
            while self.posted:
                task = self._loop.create_task(self._carry_out(self.posted.popleft()))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        self._loop.run_until_complete(_rounds())
        if self._unexpected:
            raise self._unexpected.pop(0)

    def stop(self) -> bool:
        if self.alive:
            self.alive = False
            for task in self._tasks:
                task.cancel()
            self._loop.run_until_complete(_rounds())
            self._loop.close()
        return True

    async def _carry_out(self, call: Callable[[Any], Awaitable[None]]) -> None:
        try:
            await call(self._client)
        except BlockyardError as error:
            self.faults.append(error)
        except AssertionError as error:  # a test's own check, which is to end the test
            self._unexpected.append(error)


def calls_in_turns(
    description: EngineDescription, guards: EngineGuards
) -> tuple[node_calls.ThreadedCalls, TurnClient, TurnThread]:
    """Calls of an engine, their client and their thread."""
    made: list[TurnClient] = []

    @asynccontextmanager
    async def client(*_: object, on_state: Any, on_loading: Any, on_stores_settled: Any) -> Any:
        made.append(TurnClient(on_state, on_stores_settled))
        yield made[0]

    with patch.object(node_calls, "ClientThread", TurnThread):
        calls = node_calls.ThreadedCalls(Path("/nowhere"), description, guards, client=client)
    thread: Any = calls._thread
    return calls, made[0], thread


async def _rounds() -> None:
    for _ in range(_ENOUGH):
        await asyncio.sleep(0)
