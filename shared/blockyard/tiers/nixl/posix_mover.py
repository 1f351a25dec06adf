"""Mover on NIXL's POSIX backend: one owner thread holds the agent, the event loop only hands over and awaits.

    loop: write/read --queue--> owner thread: post (a few requests live) -> poll -> per block outcome --future--> loop

The backend makes progress only while it is polled. The thread therefore sleeps in its queue when nothing is live, and
else polls, with naps that grow to a fifth of a millisecond: naps beat spinning, which takes the processor from the
kernel's own I/O work. A failed request does not say which block failed; its blocks are then moved one by one through
the file, which also tells a full device from a broken one.

Invariants: a request is never released before it ended, whatever becomes of the task that waits for it; after
``close`` no thread and no registration is left, or ``TransferError`` says so.
Threading: calls come from event loops; the agent lives and dies in the owner thread.
"""

import asyncio
import logging
import queue
import threading
from concurrent.futures import Future
from typing import Final, Self, final

import numpy as np

from blockyard.core.errors import TransferError, UnsupportedOperationError
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoveOutcome, SlabRegion, SlotArray
from blockyard.tiers.block_moves import Direction, check_move
from blockyard.tiers.nixl.owner_loop import Move, OwnerLoop
from blockyard.tiers.nixl.posix_agent import PosixAgent, PosixQueue

_LOG = logging.getLogger(__name__)
_CLOSE_SECONDS: Final = 30.0


@final
class PosixMover:
    """Moves blocks with NIXL. Make one with ``open``."""

    def __init__(self, arena: Arena, io_queue: PosixQueue) -> None:
        """Start the owner thread; use ``open``, which also waits for the agent."""
        self._arena = arena
        self._io_queue = io_queue
        self._closed = False
        self._failure = ""
        self._inbox: queue.SimpleQueue[Move | None] = queue.SimpleQueue()
        self._opened: Future[None] = Future()
        self._opened.set_running_or_notify_cancel()
        self._owner: OwnerLoop | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    @classmethod
    async def open(cls, arena: Arena, io_queue: PosixQueue) -> Self:
        """Make a mover for ``arena``.

        Raises:
            TransferError: NIXL or this kernel interface does not work here.
        """
        mover = cls(arena, io_queue)
        await asyncio.wrap_future(mover._opened)
        return mover

    @property
    def name(self) -> str:
        """Name for metrics and logs."""
        return f"nixl-posix-{self._io_queue.value}"

    @property
    def failure(self) -> str:
        """Why the owner thread ended by itself; empty while it works."""
        return self._failure

    @property
    def retried_blocks(self) -> int:
        """Blocks that were moved one by one because a request that held them failed."""
        return self._owner.retried_blocks if self._owner else 0

    async def write(self, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray) -> list[MoveOutcome]:
        """Arena to file."""
        return await self._move(Direction.WRITE, region, arena_slots, file_slots)

    async def read(self, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray) -> list[MoveOutcome]:
        """File to arena."""
        return await self._move(Direction.READ, region, arena_slots, file_slots)

    async def close(self) -> None:
        """End after all moves in progress; harmless when repeated.

        Raises:
            TransferError: a request never ended. The thread keeps it; end the process before using its memory again.
        """
        if not self._closed:
            self._closed = True
            self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, _CLOSE_SECONDS)
        if self._thread.is_alive():
            raise TransferError("a NIXL request never ended", mover=self.name)
        if self._failure:
            raise TransferError(self._failure, mover=self.name)

    async def _move(
        self, direction: Direction, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray
    ) -> list[MoveOutcome]:
        if self._closed:
            raise UnsupportedOperationError("the mover is closed", mover=self.name)
        check_move(self._arena, region, arena_slots, file_slots)
        count = len(arena_slots)
        if not count:
            return []
        done: Future[list[MoveOutcome]] = Future()
        # From here on the future cannot be cancelled: a waiter that leaves is detached, the I/O goes on to its end.
        done.set_running_or_notify_cancel()
        indexes = (np.ascontiguousarray(arena_slots, np.int32), np.ascontiguousarray(file_slots, np.int32))
        self._inbox.put(Move(direction, region, *indexes, [MoveOutcome.IO_ERROR] * count, count, done))
        if self._failure:
            # The thread may have emptied its inbox for the last time just before.
            raise TransferError(self._failure, mover=self.name)
        return await asyncio.wrap_future(done)

    # --- owner thread ---------------------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            agent = PosixAgent(self._io_queue, self._arena)
        except TransferError as error:
            self._opened.set_exception(error)
            return
        self._owner = owner = OwnerLoop(agent, self._arena, self._inbox)
        self._opened.set_result(None)
        try:
            owner.run()
            agent.close()
        except Exception as error:  # noqa: BLE001 - the thread's supervisor: without it every waiter would hang
            _LOG.critical("the NIXL owner thread failed; end the process", exc_info=error)
            self._failure = f"the NIXL owner thread failed: {error}"
            owner.refuse_waiting(TransferError(self._failure, mover=self.name))
