"""Loads of an engine into its own memory, from the first word to the moment after which no write can follow.

Invariants: a block named in an unfinished load is in ``unsettled`` and must not be reused until it leaves it, whatever
becomes of the caller or of the connection.
Threading: one event loop.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Final, final

from blockyard.connectors.load_result import LoadResult
from blockyard.connectors.manager_link import ManagerLink
from blockyard.core.errors import (
    BlockyardError,
    DeadlineExceededError,
    PeerClosedError,
    RequestError,
    UnavailableError,
)
from blockyard.core.vocabulary import EngineBlockId, LoadId
from blockyard.wire import connector_channel as channel
from blockyard.wire.trace_parent import TraceParent

_SETTLE_SECONDS: Final = 30.0
"""How long after its deadline a load may still be settling before the connection is given up."""
_OVERDUE_SECONDS: Final = 0.25
"""How long after its deadline the end of a load is waited for: its request goes on then, its blocks stay unsettled."""


@final
class EngineLoads:
    """The loads of one engine."""

    def __init__(self) -> None:
        """Begin with none."""
        self._unsettled: set[EngineBlockId] = set()
        self._abandoned: set[asyncio.Task[None]] = set()
        """Ends of loads whose callers were cancelled."""

    @property
    def unsettled(self) -> frozenset[EngineBlockId]:
        """G1 blocks that a write may still reach."""
        return frozenset(self._unsettled)

    def check_settled(self, blocks: Sequence[EngineBlockId]) -> None:
        """Refuse blocks that a write may still reach.

        Raises:
            RequestError: names one.
        """
        if unfinished := self._unsettled.intersection(blocks):
            raise RequestError("a block is named in an unfinished load", block=min(unfinished))

    async def run(
        self,
        link: ManagerLink,
        message: channel.OpenLoad,
        blocks: Sequence[EngineBlockId],
        rows: int,
        trace: TraceParent,
    ) -> LoadResult:
        """Load ``rows`` rows into these blocks; see ``BlockyardClient.load``."""
        self._unsettled.update(blocks)
        try:
            open_call = link.call(message, channel.LoadOpened, trace=trace)
            finished = await self._finish(link, open_call, blocks, message.ttl_ms / 1_000 + _OVERDUE_SECONDS)
        except (PeerClosedError, DeadlineExceededError):
            link.give_up()  # written or not is unknown: the next connection settles the blocks
            return LoadResult.unknown(rows)
        except UnavailableError:
            self._unsettled.difference_update(blocks)  # the node is not ready: nothing was begun
            return LoadResult.unknown(rows)
        except BlockyardError:
            self._unsettled.difference_update(blocks)  # refused before anything was planned
            raise
        if finished is None:
            return LoadResult.unknown(rows)
        self._unsettled.difference_update(blocks)
        return LoadResult.of(finished, rows)

    async def settle(self, link: ManagerLink, blocks: frozenset[EngineBlockId]) -> None:
        """Wait until writes of earlier connections are over, then give their blocks back to the engine."""
        if not blocks:
            return
        try:
            await link.call(channel.Settle(), channel.Done, timeout_seconds=_SETTLE_SECONDS)
        except BlockyardError:
            link.give_up()  # still not settled: the next connection asks again
        else:
            self._unsettled -= blocks

    async def close(self) -> None:
        """Wait for no load any more."""
        for task in self._abandoned:
            task.cancel()
        await asyncio.gather(*self._abandoned, return_exceptions=True)

    async def _finish(
        self,
        link: ManagerLink,
        open_call: Coroutine[object, object, channel.LoadOpened],
        blocks: Sequence[EngineBlockId],
        timeout_seconds: float,
    ) -> channel.LoadFinished | None:
        """The end of a load; None where it is overdue, and settled in the background."""
        opening = asyncio.create_task(open_call)
        try:
            # Shielded: a caller that goes away must not take with it the number by which the load can be closed.
            opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._abandon(link, opening, blocks)
            raise
        try:
            return await link.finished(LoadId(opened.load), timeout_seconds)
        except asyncio.CancelledError:
            self._abandon(link, opening, blocks)
            raise
        except DeadlineExceededError:
            self._abandon(link, opening, blocks)
            return None

    def _abandon(
        self, link: ManagerLink, opening: asyncio.Task[channel.LoadOpened], blocks: Sequence[EngineBlockId]
    ) -> None:
        task = asyncio.create_task(self._close_load(link, opening, tuple(blocks)))
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)

    async def _close_load(
        self, link: ManagerLink, opening: asyncio.Task[channel.LoadOpened], blocks: tuple[EngineBlockId, ...]
    ) -> None:
        """Give the blocks of an abandoned load back once no write can follow."""
        try:
            load = LoadId((await opening).load)
        except (PeerClosedError, DeadlineExceededError):
            link.give_up()  # the next connection settles the blocks
        except BlockyardError:
            self._unsettled.difference_update(blocks)  # refused before anything was planned
        else:
            try:
                await link.call(channel.CloseLoad(load=load), channel.Done, timeout_seconds=_SETTLE_SECONDS)
            except BlockyardError:
                link.give_up()
            else:
                link.forget(load)
                self._unsettled.difference_update(blocks)
