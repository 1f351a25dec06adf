"""What the scheduler half says to the node, and what it hears: orders go to the client's thread, news come back.

``NodeCalls`` is what the scheduler half knows of the node; ``ThreadedCalls`` is the real one. Names of rows are made
in the client's thread, and so is every wait.
Invariants: every call returns at once. Every lookup and every load is answered by exactly one piece of news, whatever
becomes of the node, a load only when no write into its pages can follow; every ticket is told as settled once.
Threading: orders from the scheduler's thread, which also takes the news; the client lives in the thread of its loop.
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, Protocol, final

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.client_thread import ClientThread
from blockyard.connectors.engine_description import EngineDescription
from blockyard.connectors.engine_guards import EngineGuards, Numbers
from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.vllm.rows import FILLER, Rows
from blockyard.connectors.vllm.slot_orders import SlotNews, SlotOrders, ThreadedSlots
from blockyard.core.engine_names import EngineNames
from blockyard.core.errors import UnavailableError
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import Availability, Guard, RequestId
from blockyard.wire.connector_channel import RequestDecision

_SETTLE_POLL_SECONDS: Final = 0.02
_LEASE_SECONDS: Final = 5.0
_log: Final = logging.getLogger(__name__)


# --- news ---------------------------------------------------------------------------------------------------------
@final
@dataclass(frozen=True, slots=True)
class LookupAnswered:
    """Per group and row where the rows of a prompt are; None where the node could not be asked."""

    request: str
    attempt: int
    found: tuple[tuple[Availability, ...], ...] | None
    seconds: float


@final
@dataclass(frozen=True, slots=True)
class LoadEnded:
    """No write of this load can follow; one result per ``Rows`` of its order."""

    load: int
    results: tuple[LoadResult, ...]
    seconds: float


@final
@dataclass(frozen=True, slots=True)
class RowsAnnounced:
    """So many rows were whole and are announced."""

    rows: int


@final
@dataclass(frozen=True, slots=True)
class StoresSettled:
    """No store reads the rows that were registered under this ticket."""

    ticket: int


@final
@dataclass(frozen=True, slots=True)
class NodeState:
    """Whether the node can be asked, and whether loads are switched on there."""

    connected: bool
    loading: bool


News = LookupAnswered | LoadEnded | RowsAnnounced | StoresSettled | NodeState | SlotNews


class NodeCalls(Protocol):
    """Node of an engine, without waiting.

    Orders begin when the caller says ``flush``, all in turn; a lookup begins at once, and what was ordered before it.
    """

    news: deque[News]

    @property
    def slots(self) -> SlotOrders:
        """The same for slots that ranks copy by themselves."""
        ...

    @property
    def alive(self) -> bool:
        """Whether orders are carried out at all."""
        ...

    def lookup(self, request: str, attempt: int, hashes: list[bytes], wait_seconds: float) -> None:
        """Ask where the rows of a prompt are, from row 0; ``LookupAnswered`` follows."""
        ...

    def reserve(self, request: str, hashes: list[bytes]) -> None:
        """Lease these rows, from row 0; repeating renews."""
        ...

    def release(self, request: str) -> None:
        """End the lease of a request."""
        ...

    def load(self, load: int, request: str, rows: Sequence[Rows], ttl_seconds: float) -> None:
        """Bring rows into their pages; ``LoadEnded`` follows."""
        ...

    def drop_load(self, load: int) -> bool:
        """Nobody waits for a load whose node is gone; whether it is."""
        ...

    def register(self, rows: Rows, ticket: int) -> None:
        """Announce those of the complete rows whose blocks nobody got since; ``StoresSettled`` follows."""
        ...

    def deregister(self, blocks: Sequence[Numbers]) -> None:
        """Blocks are reused; their guards are raised already. The filler, and a block named twice, do no harm."""
        ...

    def reset(self) -> None:
        """No block holds anything any more; all guards are raised already."""
        ...

    def report(self, decisions: Sequence[RequestDecision]) -> None:
        """Tell operators what was decided."""
        ...

    def flush(self) -> None:
        """What was ordered begins; to be said before the caller computes or rests."""
        ...

    def close(self) -> None:
        """End; bounded in time."""
        ...


@final
class ThreadedCalls:
    """Calls through a client in a thread of its own."""

    def __init__(
        self,
        socket: Path,
        description: EngineDescription,
        guards: EngineGuards,
        *,
        client: Callable[..., AbstractAsyncContextManager[BlockyardClient]] = BlockyardClient,
    ) -> None:
        """Connect in the background; ``client`` makes the client."""
        self.news: deque[News] = deque()
        self._groups = tuple(group.group for group in description.groups)
        self._names = EngineNames(description.identity.digest())
        self._guards = guards
        self._ticket_of: dict[int, int] = {}
        """Tickets of the client, one per stretch of rows, and ours."""
        self._unsettled: Counter[int] = Counter()
        self._client_tickets = count(1)
        self._state = NodeState(connected=False, loading=True)
        self._life = 0
        """Connections so far."""
        self._refusals = 0
        self._thread: ClientThread[BlockyardClient] = ClientThread(
            lambda: client(
                socket,
                description,
                guards,
                on_state=self._connected,
                on_loading=self._loading,
                on_stores_settled=self._stretch_settled,
            ),
            "blockyard-client",
        )
        self.slots = ThreadedSlots(self._order, self._names, self.news.append, lambda: self._life)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """See ``NodeCalls``."""
        return self._thread.alive

    def lookup(self, request: str, attempt: int, hashes: list[bytes], wait_seconds: float) -> None:
        """See ``NodeCalls``."""
        asked = time.monotonic()

        async def call(client: BlockyardClient) -> None:
            found = None
            try:
                found = await client.lookup(
                    self._names.run(hashes), groups=self._groups, remote_wait_seconds=wait_seconds
                )
            finally:
                self.news.append(LookupAnswered(request, attempt, found, time.monotonic() - asked))

        self._thread.post(call)

    def reserve(self, request: str, hashes: list[bytes]) -> None:
        """See ``NodeCalls``."""

        async def call(client: BlockyardClient) -> None:
            await client.reserve(
                RequestId(request), self._names.run(hashes), groups=self._groups, ttl_seconds=_LEASE_SECONDS
            )

        self._order(call)

    def release(self, request: str) -> None:
        """See ``NodeCalls``."""

        async def call(client: BlockyardClient) -> None:
            await client.release(RequestId(request))

        self._order(call)

    def load(self, load: int, request: str, rows: Sequence[Rows], ttl_seconds: float) -> None:
        """See ``NodeCalls``."""
        asked = time.monotonic()

        async def call(client: BlockyardClient) -> None:
            results = await asyncio.gather(*(self._load(client, request, part, ttl_seconds) for part in rows))
            pages = {page for part in rows for page in part.blocks()}
            # The client takes blocks out when no write can follow, and says nothing of it.
            while not client.unsettled_blocks.isdisjoint(pages):  # noqa: ASYNC110
                await asyncio.sleep(_SETTLE_POLL_SECONDS)
            self.news.append(LoadEnded(load, tuple(results), time.monotonic() - asked))

        self._order(call)

    def drop_load(self, load: int) -> bool:
        """See ``NodeCalls``."""
        return not (self.alive and self._state.connected)

    def register(self, rows: Rows, ticket: int) -> None:
        """See ``NodeCalls``."""

        async def call(client: BlockyardClient) -> None:
            self._unsettled[ticket] += 1
            try:
                for part in rows.intact(self._guards):
                    await self._register(client, part, ticket)
            finally:
                self._settled(ticket)

        self._order(call)

    def deregister(self, blocks: Sequence[Numbers]) -> None:
        """See ``NodeCalls``."""

        async def call(client: BlockyardClient) -> None:
            once = dict.fromkeys(block for part in blocks for block in part.tolist())
            once.pop(FILLER, None)
            await client.deregister(list(once))

        self._order(call)

    def reset(self) -> None:
        """See ``NodeCalls``."""

        async def call(client: BlockyardClient) -> None:
            await client.reset()

        self._order(call)

    def report(self, decisions: Sequence[RequestDecision]) -> None:
        """See ``NodeCalls``."""

        async def call(client: BlockyardClient) -> None:
            await client.report_decisions(decisions)

        self._order(call)

    def flush(self) -> None:
        """See ``NodeCalls``."""
        self._thread.flush()

    def close(self) -> None:
        """See ``NodeCalls``."""
        if not self._thread.stop():
            _log.warning("the thread that talks to the node does not end; it is left behind")

    def _order(self, call: Callable[[BlockyardClient], Awaitable[None]]) -> None:
        self._thread.post(call, wake=False)

    # --- in the client's thread ---------------------------------------------------------------------------------------
    async def _register(self, client: BlockyardClient, rows: Rows, ticket: int) -> None:
        """Announce one stretch, unless its blocks were reused while one before it was announced."""
        if rows.intact(self._guards) != [rows]:
            return
        run = self._names.run(rows.hashes, rows.first_row)
        number = next(self._client_tickets)
        self._ticket_of[number] = ticket
        self._unsettled[ticket] += 1
        self.news.append(RowsAnnounced(rows.count))
        with suppress(UnavailableError):  # the client announces it with the next connection
            await client.register(
                run,
                rows.pages.tolist(),
                group=rows.group,
                guards=rows.guards.tolist(),
                ticket=number,
            )

    def _stretch_settled(self, number: int) -> None:
        self._settled(self._ticket_of.pop(number))

    def _settled(self, ticket: int) -> None:
        self._unsettled[ticket] -= 1
        if not self._unsettled[ticket]:
            del self._unsettled[ticket]
            self.news.append(StoresSettled(ticket))

    async def _load(self, client: BlockyardClient, request: str, rows: Rows, ttl_seconds: float) -> LoadResult:
        result = LoadResult.unknown(rows.count)
        pages = rows.pages.tolist()
        try:
            result = await client.load(
                RequestId(request),
                self._names.run(rows.hashes, rows.first_row),
                pages,
                group=rows.group,
                ttl_seconds=ttl_seconds,
                guards=[
                    Guard(0) if page == NO_PAGE else guard
                    for page, guard in zip(pages, rows.guards.tolist(), strict=True)
                ],
            )
        except UnavailableError:
            pass  # the connection reports itself
        # Whatever it was: the request has to hear of an end, and is computed.
        except Exception as error:  # noqa: BLE001
            self._refusals += 1
            _log.log(logging.WARNING if self._refusals == 1 else logging.DEBUG, "a load becomes a miss", exc_info=error)
        return result

    def _connected(self, connected: bool) -> None:  # noqa: FBT001 - the client tells one fact
        self._life += connected
        self._state = NodeState(connected=connected, loading=self._state.loading)
        self.news.append(self._state)

    def _loading(self, loading: bool) -> None:  # noqa: FBT001 - the client tells one fact
        self._state = NodeState(connected=self._state.connected, loading=loading)
        self.news.append(self._state)
