"""Calls through a client in a thread of its own: order, answers that always come, and an end within bounds."""

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blockyard.connectors.client_thread import ClientThread
from blockyard.connectors.engine_description import EngineDescription
from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.vllm.node_calls import (
    LoadEnded,
    LookupAnswered,
    NodeState,
    RowsAnnounced,
    StoresSettled,
    ThreadedCalls,
)
from blockyard.connectors.vllm.rows import Rows
from blockyard.core.errors import RequestError, UnavailableError
from blockyard.core.identity import ModelIdentity
from blockyard.core.kv_groups import NO_PAGE, KvGroup
from blockyard.core.vocabulary import Availability, EngineBlockId, EngineId, GroupId, Guard, ItemStatus, Tier

DESCRIPTION = EngineDescription(
    engine=EngineId("e"), identity=ModelIdentity(model="m"), blocks=16, groups=(KvGroup(engine_block_tokens=256),)
)
HASHES = [bytes([row]) * 32 for row in range(5)]


def rows(*pages: int, first_row: int = 0, guard: int = 0) -> Rows:
    """Rows of one page."""
    hashes = HASHES[max(0, first_row - 1) : first_row + len(pages)]
    return Rows(GroupId(0), first_row, hashes, np.array(pages, np.int64), np.full(len(pages), guard, np.uint64))


ROWS = rows(3)
LOADED = Rows(GroupId(0), 1, HASHES[:2], np.array([3, NO_PAGE], np.int64), np.array([1, 9], np.uint64))
DEADLINE_SECONDS = 10.0


def until(condition: Callable[[], bool]) -> None:
    """Poll under a deadline: the other thread has no event that this one could wait for."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class ScriptedClient:
    """A client whose answers the test chooses."""

    def __init__(self, *_: object, on_state: Any, on_loading: Any, on_stores_settled: Any) -> None:
        self.on_state, self.on_loading, self.on_stores_settled = on_state, on_loading, on_stores_settled
        self.calls: list[str] = []
        self.guards: Sequence[Guard] = ()
        self.error: Exception | None = None
        self.registered: list[tuple[int, int, list[int]]] = []
        """Ticket, first row and pages."""
        self.settles = True
        self.on_register: Callable[[], None] = lambda: None
        self.deregistered: list[int] = []
        self.unsettled_blocks: frozenset[EngineBlockId] = frozenset()

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.error is not None:
            raise self.error

    async def lookup(self, run: Any, *, groups: Any, remote_wait_seconds: float) -> Any:
        self._called("lookup")
        return ((Availability.G2,) * len(run),)

    async def load(self, request: Any, run: Any, pages: Any, *, guards: Any, group: Any, ttl_seconds: float) -> Any:
        self._called("load")
        self.guards = guards
        return LoadResult((ItemStatus.OK,) * len(run), (Tier.G2,) * len(run))

    async def register(self, run: Any, pages: Any, *, group: Any, guards: Any, ticket: int) -> None:
        self.registered.append((ticket, run.first_position, pages))
        self.on_register()
        try:
            self._called("register")
        except BaseException:
            self.on_stores_settled(ticket)  # as the client does
            raise
        if self.settles:
            self.on_stores_settled(ticket)

    async def deregister(self, blocks: Any) -> None:
        self._called("deregister")
        self.deregistered += blocks


class Scene:
    """Calls with a scripted client."""

    def __init__(self) -> None:
        self.guards = EngineGuards(16)
        self.client: Any = None
        ready = threading.Event()

        @asynccontextmanager
        async def connect(*arguments: Any, **options: Any) -> AsyncIterator[Any]:
            self.client = ScriptedClient(*arguments, **options)
            ready.set()
            yield self.client

        self.calls = ThreadedCalls(Path("/nowhere"), DESCRIPTION, self.guards, client=connect)
        assert ready.wait(DEADLINE_SECONDS)

    def close(self) -> None:
        self.calls.close()
        self.guards.close()


@pytest.fixture
def scene() -> Any:
    scene = Scene()
    yield scene
    scene.close()


def test_a_lookup_is_answered(scene: Scene) -> None:
    scene.calls.lookup("r", 1, [b"a" * 32], 0.1)
    until(lambda: bool(scene.calls.news))
    answer = scene.calls.news.popleft()
    assert isinstance(answer, LookupAnswered)
    assert answer.found == ((Availability.G2,),)


@pytest.mark.parametrize("error", [UnavailableError("away"), RequestError("refused"), ValueError("a fault")])
def test_lookups_and_loads_that_fail_are_answered_too(scene: Scene, error: Exception) -> None:
    scene.client.error = error
    scene.calls.lookup("r", 1, [b"a" * 32], 0.1)
    scene.calls.load(7, "r", [LOADED], 1.0)
    scene.calls.flush()
    until(lambda: len(scene.calls.news) == 2)
    answer, ended = scene.calls.news
    assert isinstance(answer, LookupAnswered)
    assert answer.found is None
    assert isinstance(ended, LoadEnded)
    assert ended.results == (LoadResult.unknown(1),)


def test_a_load_ends_only_when_no_write_into_its_pages_can_follow(scene: Scene) -> None:
    scene.client.unsettled_blocks = frozenset({EngineBlockId(3)})
    scene.calls.load(7, "r", [LOADED], 1.0)
    scene.calls.flush()
    until(lambda: "load" in scene.client.calls)
    scene.calls.deregister([np.array([5])])
    scene.calls.flush()
    until(lambda: "deregister" in scene.client.calls)
    assert not scene.calls.news
    scene.client.unsettled_blocks = frozenset()
    until(lambda: bool(scene.calls.news))
    assert scene.client.guards == [1, 0], "a page that is left out has no guard"


def test_calls_begin_in_the_order_in_which_they_were_made(scene: Scene) -> None:
    for ticket in range(1, 20):
        scene.calls.deregister([np.array([1])])
        scene.calls.register(ROWS, ticket)
    scene.calls.flush()
    until(lambda: len(scene.client.calls) == 38)
    assert scene.client.calls == ["deregister", "register"] * 19
    assert [item.ticket for item in scene.calls.news if isinstance(item, StoresSettled)] == list(range(1, 20))


def settled(scene: Scene) -> list[int]:
    return [item.ticket for item in scene.calls.news if isinstance(item, StoresSettled)]


def announced(scene: Scene) -> int:
    return sum(item.rows for item in scene.calls.news if isinstance(item, RowsAnnounced))


def test_rows_whose_blocks_somebody_got_are_not_announced(scene: Scene) -> None:
    scene.guards.raise_guards([EngineBlockId(4)])
    scene.client.settles = False
    scene.calls.register(rows(3, 4, 5, 6), 7)
    scene.calls.flush()
    until(lambda: len(scene.client.registered) == 2)
    (first, at_first, before), (second, at_second, behind) = scene.client.registered
    assert ((at_first, before), (at_second, behind)) == ((0, [3]), (2, [5, 6]))
    assert announced(scene) == 3
    scene.client.on_stores_settled(first)
    assert settled(scene) == [], "a store may still read the others"
    scene.client.on_stores_settled(second)
    assert settled(scene) == [7]


def test_rows_that_are_all_gone_are_settled_at_once(scene: Scene) -> None:
    scene.guards.raise_guards([EngineBlockId(3), EngineBlockId(4)])
    scene.calls.register(rows(3, 4), 7)
    scene.calls.flush()
    until(lambda: settled(scene) == [7])
    assert (scene.client.registered, announced(scene)) == ([], 0)


def test_a_stretch_whose_blocks_go_while_the_one_before_it_is_announced_is_left_out(scene: Scene) -> None:
    scene.guards.raise_guards([EngineBlockId(4)])
    scene.client.on_register = lambda: scene.guards.raise_guards([EngineBlockId(6)])
    scene.calls.register(rows(3, 4, 5, 6), 7)
    scene.calls.flush()
    until(lambda: settled(scene) == [7])
    assert [pages for _, _, pages in scene.client.registered] == [[3]]


@pytest.mark.parametrize("error", [UnavailableError("away"), RequestError("refused")])
def test_a_ticket_is_settled_whatever_becomes_of_its_calls(scene: Scene, error: Exception) -> None:
    scene.guards.raise_guards([EngineBlockId(4)])
    scene.client.error = error
    scene.calls.register(rows(3, 4, 5), 7)
    scene.calls.flush()
    until(lambda: settled(scene) == [7])
    assert len(scene.client.registered) == (2 if isinstance(error, UnavailableError) else 1)


def test_a_ticket_is_settled_though_its_rows_cannot_be_named(scene: Scene) -> None:
    nameless = Rows(GroupId(0), 1, [], np.array([3], np.int64), np.zeros(1, np.uint64))
    scene.calls.register(nameless, 7)
    scene.calls.flush()
    until(lambda: settled(scene) == [7])
    assert (scene.client.registered, announced(scene)) == ([], 0)


def test_reused_blocks_are_named_once_and_without_the_filler(scene: Scene) -> None:
    scene.calls.deregister([np.array([5, 0, 3]), np.array([3, 0, 8])])
    scene.calls.flush()
    until(lambda: bool(scene.client.deregistered))
    assert scene.client.deregistered == [5, 3, 8]


def test_a_lookup_begins_at_once_and_takes_along_what_was_ordered_before(scene: Scene) -> None:
    scene.calls.register(ROWS, 1)
    scene.calls.lookup("r", 1, HASHES, 0.1)
    until(lambda: "lookup" in scene.client.calls)
    assert scene.client.calls == ["register", "lookup"]


def test_state_and_switch_of_the_node_are_told_together(scene: Scene) -> None:
    scene.client.on_state(True)
    scene.client.on_loading(False)
    assert list(scene.calls.news) == [NodeState(True, True), NodeState(True, False)]


def test_a_thread_that_has_ended_takes_calls_and_forgets_them(scene: Scene) -> None:
    assert scene.calls.alive
    scene.calls.close()
    assert not scene.calls.alive
    scene.calls.lookup("r", 1, [b"a" * 32], 0.1)
    assert scene.client.calls == []


@pytest.mark.parametrize("wake", [True, False])
def test_a_thread_that_has_ended_by_itself_keeps_nothing_of_what_is_posted(
    wake: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An engine goes on for months without its node's thread; what it orders in every step must not pile up."""

    class Order:
        async def __call__(self, connection: None) -> None:
            """Never begun."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[None]:
        raise ValueError("a fault")
        yield None

    thread: ClientThread[None] = ClientThread(connect, "test")
    before = Order()
    thread.post(before, wake=wake)
    thread.start()
    until(lambda: not thread.alive)
    after = Order()
    thread.post(after, wake=wake)
    kept = [weakref.ref(before), weakref.ref(after)]
    del before, after
    assert [reference() for reference in kept] == [None, None]
    assert thread.failures == 1


def test_calls_under_way_are_cancelled_at_the_end() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    @asynccontextmanager
    async def connect() -> AsyncIterator[None]:
        yield None

    async def call(_: None) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    thread: ClientThread[None] = ClientThread(connect, "test")
    thread.start()
    thread.post(call)
    assert begun.wait(DEADLINE_SECONDS)
    assert thread.stop()
    assert cancelled.is_set()


def test_a_fault_of_a_call_is_counted_and_the_next_one_is_carried_out(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    @asynccontextmanager
    async def connect() -> AsyncIterator[None]:
        yield None

    async def broken(_: None) -> None:
        raise RequestError("refused")

    async def whole(_: None) -> None:
        done.set()

    thread: ClientThread[None] = ClientThread(connect, "test")
    thread.start()
    for call in (broken, broken, whole):
        thread.post(call)
    assert done.wait(DEADLINE_SECONDS)
    assert thread.stop()
    assert thread.failures == 2
    assert len([record for record in caplog.records if "a call to the node failed" in record.message]) == 1
