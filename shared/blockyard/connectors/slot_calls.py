"""Calls about slots of the arena that ranks write and read themselves (executor ``engine``).

::

    reserve_store -> slots ─ranks copy─► commit_store per shard     abort_store: no rank writes them any more
    stage_load -> slots ─ranks copy─► close_load                    until then they stay pinned

Invariants: what a lost connection or another arena made void is refused by the block-manager, never mistaken.
Threading: one event loop.
"""

import asyncio
import logging
from array import array
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final, final

from blockyard.connectors.call_columns import column, wire_run
from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.manager_link import ManagerLink
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import BlockyardError, DeadlineExceededError, PeerClosedError, UnavailableError
from blockyard.core.vocabulary import (
    DEFAULT_TENANT,
    BlockId,
    Generation,
    GroupId,
    ItemStatus,
    LoadId,
    RequestId,
    TenantDigest,
    Tier,
)
from blockyard.wire import connector_channel as channel
from blockyard.wire.trace_parent import parse_trace_parent

_OVERDUE_SECONDS: Final = 0.25
_ONLY_GROUP: Final = GroupId(0)
_log: Final = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class StoreGrant:
    """Slots that the ranks of this engine may write, each under its generation; perhaps none."""

    grant: int
    slots: tuple[BlockId, ...]
    generations: tuple[Generation, ...]


@final
@dataclass(frozen=True, slots=True)
class StagedLoad:
    """Rows of a load in G2, checked and pinned until it is closed; slots of rows that are not OK mean nothing."""

    load: LoadId
    statuses: tuple[ItemStatus, ...]
    sources: tuple[Tier | None, ...]
    slots: tuple[BlockId, ...]
    generations: tuple[Generation, ...]


class SlotCalls:
    """These calls, as a part of an engine's client."""

    def __init__(self, connected: Callable[[], ManagerLink]) -> None:
        """Call over the link that ``connected`` returns; it raises ``UnavailableError`` where there is none."""
        self._slot_link = connected
        self._closing: set[asyncio.Task[None]] = set()

    async def reserve_store(self, count: int) -> StoreGrant:
        """Ask for up to ``count`` slots; raises as the calls of the client."""
        link = self._slot_link()
        try:
            granted = await link.call(channel.ReserveStore(count=count), channel.StoreGranted)
        except DeadlineExceededError:
            link.give_up()  # what was granted nobody knows: it comes back with the end of the session
            raise
        slots, generations = _integers("I", granted.slots), _integers("Q", granted.generations)
        if len(slots) != len(generations):
            raise UnavailableError("a grant names other slots than generations", slots=len(slots))
        return StoreGrant(granted.grant, tuple(map(BlockId, slots)), tuple(map(Generation, generations)))

    async def commit_store(
        self,
        grant: int,
        slots: Sequence[BlockId],
        run: ChainRun,
        *,
        group: GroupId = _ONLY_GROUP,
        tenant: TenantDigest = DEFAULT_TENANT,
        shards: int,
        trace: str = "",
    ) -> None:
        """Slot i of the grant holds these shards (bit mask) of row i of the run: the copies of those ranks have ended.

        Raises:
            RequestError: the grant has ended meanwhile; nothing of it will be stored.
            UnavailableError: not connected, or no answer: the next connection knows nothing of the grant.
        """
        message = channel.CommitStore(
            grant=grant, slots=column("I", slots), run=wire_run(run), group=group, tenant=tenant, shards=shards
        )
        await self._slot_link().call(message, channel.Done, trace=parse_trace_parent(trace))

    async def abort_store(self, grant: int, slots: Sequence[BlockId]) -> None:
        """Give slots of a grant back: no rank writes them any more. Raises as ``commit_store``."""
        await self._slot_link().call(channel.AbortStore(grant=grant, slots=column("I", slots)), channel.Done)

    async def stage_load(
        self,
        request: RequestId,
        run: ChainRun,
        *,
        group: GroupId = _ONLY_GROUP,
        ttl_seconds: float,
        tenant: TenantDigest = DEFAULT_TENANT,
        trace: str = "",
    ) -> StagedLoad:
        """Bring the rows of a run into G2, and pin them there until ``close_load``.

        Raises:
            RequestError: refused; nothing was begun.
            UnavailableError: not connected, or no answer in time; nothing stays pinned.
        """
        link = self._slot_link()
        message = channel.OpenLoad(
            request=request, run=wire_run(run), group=group, tenant=tenant, ttl_ms=int(ttl_seconds * 1_000)
        )
        opening = asyncio.create_task(link.call(message, channel.LoadOpened, trace=parse_trace_parent(trace)))
        try:
            # Shielded: a caller that goes away must not take with it the number by which the load can be closed.
            load = LoadId((await asyncio.shield(opening)).load)
            staged = await link.staged(load, ttl_seconds + _OVERDUE_SECONDS)
        except (asyncio.CancelledError, DeadlineExceededError):
            self._close_later(self._close_staged(link, opening))
            raise
        return _staged(load, staged, len(run))

    async def close_load(self, load: LoadId) -> None:
        """No rank reads the slots of a staged load any more. Without a connection the node knows by itself."""
        try:
            await self._slot_link().call(channel.CloseLoad(load=load), channel.Done)
        except (PeerClosedError, DeadlineExceededError):
            return  # carried out in its turn, or ended with the session

    async def _end_slot_calls(self) -> None:
        """End what goes on in the background."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _close_later(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_staged(self, link: ManagerLink, opening: asyncio.Task[channel.LoadOpened]) -> None:
        try:
            load = LoadId((await opening).load)
        except DeadlineExceededError:
            link.give_up()  # it may be open under a number that nobody knows: its pins end with the session
            return
        except BlockyardError:
            return  # refused, or over with the session
        try:
            await link.call(channel.CloseLoad(load=load), channel.Done)
        except BlockyardError as error:
            _log.debug("a staged load was not closed: %s", error)
        link.forget(load)


def _staged(load: LoadId, staged: channel.LoadStaged, rows: int) -> StagedLoad:
    ended = channel.LoadFinished(load=load, status=staged.status, sources=staged.sources)
    slots, generations = _integers("I", staged.slots), _integers("Q", staged.generations)
    result = LoadResult.of(ended, rows) if len(slots) == len(generations) == rows else LoadResult.unknown(rows)
    if len(slots) != rows or len(generations) != rows:
        slots = generations = array("Q", [0] * rows)
    return StagedLoad(
        load, result.statuses, result.sources, tuple(map(BlockId, slots)), tuple(map(Generation, generations))
    )


def _integers(code: str, data: bytes) -> "array[int]":
    values: array[int] = array(code)
    if len(data) % values.itemsize == 0:
        values.frombytes(data)
    return values
