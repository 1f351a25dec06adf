"""The owner thread's loop of the NIXL mover: takes moves, keeps a few requests live, polls, hands outcomes back.

    inbox -> moves -> parts (waiting) -> posted (live, at most four) -> ended -> outcomes of the part -> move resolved

Invariants: a live request is polled until it ended, then released, and only then are its outcomes known; a move is
resolved when the last of its parts ended. After ``None`` in the inbox the loop ends once nothing is left.
Threading: everything here runs in the owner thread; only the inbox and the futures are shared.
"""

import logging
import queue
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Protocol, final

from blockyard.core.errors import TransferError
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoveOutcome, SlabRegion, SlotArray
from blockyard.tiers.block_moves import Direction, move_each_block
from blockyard.tiers.nixl.posix_agent import PosixTransfer
from blockyard.tiers.nixl.transfer_state import TransferState

_LOG = logging.getLogger(__name__)
_LIVE_REQUESTS: Final = 4
_REQUEST_BLOCKS: Final = 128
_REQUEST_BYTES: Final = 64 << 20
_EAGER_POLLS: Final = 3
_SHORTEST_NAP_SECONDS: Final = 20e-6
_LONGEST_NAP_SECONDS: Final = 200e-6


@dataclass(slots=True, eq=False)
class Move:
    """One call of a mover; resolved when the outcomes of all its blocks are known."""

    direction: Direction
    region: SlabRegion
    arena_slots: SlotArray
    file_slots: SlotArray
    outcomes: list[MoveOutcome]
    open_blocks: int
    done: Future[list[MoveOutcome]]


@dataclass(slots=True, eq=False)
class _Part:
    """Some blocks of a move: what one request carries."""

    move: Move
    blocks: slice

    @property
    def arena_slots(self) -> SlotArray:
        return self.move.arena_slots[self.blocks]

    @property
    def file_slots(self) -> SlotArray:
        return self.move.file_slots[self.blocks]


class TransferAgent(Protocol):
    """What the loop needs of an agent."""

    def post(
        self, direction: Direction, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray
    ) -> PosixTransfer:
        """Start a request, or raise ``TransferError`` if no byte will move."""
        ...

    def poll(self, transfer: PosixTransfer) -> TransferState:
        """Make progress and look at one request."""
        ...

    def finish(self, transfer: PosixTransfer) -> None:
        """Release a request that ended."""
        ...


@final
class OwnerLoop:
    """Runs in the owner thread until told to stop."""

    def __init__(self, agent: TransferAgent, arena: Arena, inbox: "queue.SimpleQueue[Move | None]") -> None:
        """Serve the moves in ``inbox`` with ``agent``."""
        self._agent = agent
        self._arena = arena
        self._inbox = inbox
        self._waiting: deque[_Part] = deque()
        self._live: list[tuple[PosixTransfer, _Part]] = []
        self._stopping = False
        self._idle_polls = 0
        self.retried_blocks = 0
        """Blocks that were moved one by one because a request that held them failed."""

    def run(self) -> None:
        """Serve until ``None`` was taken from the inbox and everything ended."""
        while self._take() or self._waiting or self._live:
            self._post()
            self._poll()
            self._nap()

    def refuse_waiting(self, error: TransferError) -> None:
        """After ``run`` raised: fail the moves of which no byte moved. Those that began stay open: nobody knows when
        their buffers are free."""
        begun = {id(part.move) for _, part in self._live}
        waiting = {id(part.move): part.move for part in self._waiting}
        while True:
            try:
                move = self._inbox.get_nowait()
            except queue.Empty:
                break
            if move is not None:
                waiting[id(move)] = move
        for key, move in waiting.items():
            if key not in begun:
                move.done.set_exception(error)

    def _take(self) -> bool:
        """Empty the inbox, waiting for a move if there is nothing else to do. False once told to stop."""
        block = not (self._waiting or self._live or self._stopping)
        while not self._stopping:
            try:
                move = self._inbox.get(block)
            except queue.Empty:
                break
            block = False
            if move is None:
                self._stopping = True
            else:
                self._waiting.extend(self._parts(move))
        return not self._stopping

    def _parts(self, move: Move) -> list[_Part]:
        step = max(1, min(_REQUEST_BLOCKS, _REQUEST_BYTES // self._arena.stride_bytes))
        return [_Part(move, slice(first, first + step)) for first in range(0, len(move.arena_slots), step)]

    def _post(self) -> None:
        while self._waiting and len(self._live) < _LIVE_REQUESTS:
            part = self._waiting.popleft()
            move = part.move
            try:
                transfer = self._agent.post(move.direction, move.region, part.arena_slots, part.file_slots)
            except TransferError as error:
                _LOG.warning("%s", error)
                self._move_each(part)
                continue
            self._live.append((transfer, part))

    def _poll(self) -> None:
        running: list[tuple[PosixTransfer, _Part]] = []
        ended = 0
        for transfer, part in self._live:
            state = self._agent.poll(transfer)
            if state is TransferState.RUNNING:
                running.append((transfer, part))
                continue
            ended += 1
            self._agent.finish(transfer)
            if state is TransferState.DONE:
                self._settle(part, [MoveOutcome.DONE] * len(part.arena_slots))
            else:
                self._move_each(part)
        self._live = running
        self._idle_polls = 0 if ended else self._idle_polls + 1

    def _nap(self) -> None:
        naps = self._idle_polls - _EAGER_POLLS
        if self._live and naps > 0:
            time.sleep(min(_LONGEST_NAP_SECONDS, _SHORTEST_NAP_SECONDS * naps))

    def _move_each(self, part: _Part) -> None:
        move = part.move
        outcomes = move_each_block(self._arena, move.region, move.direction, part.arena_slots, part.file_slots)
        self.retried_blocks += len(outcomes)
        failed = len(outcomes) - outcomes.count(MoveOutcome.DONE)
        _LOG.warning("a request of %d blocks failed; one by one %d of them failed", len(outcomes), failed)
        self._settle(part, outcomes)

    def _settle(self, part: _Part, outcomes: list[MoveOutcome]) -> None:
        move = part.move
        move.outcomes[part.blocks] = outcomes
        move.open_blocks -= len(outcomes)
        if not move.open_blocks:
            move.done.set_result(move.outcomes)
