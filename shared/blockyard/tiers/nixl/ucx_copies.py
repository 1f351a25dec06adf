"""Copies through the UCX agent that return when they are over, with the one rule that keeps memory safe.

    copy -> post -> poll (three times at once, then with naps) -> finish
                          └─ longer than the deadline: UnendedTransferError, kept for ever

A request that does not end cannot be cancelled and may still write. So it is kept with the memory it uses, nothing is
copied or forgotten any more, and the error is none of those after which a job may be settled: it ends the process,
and only that frees the memory.
Invariants: after ``copy`` returned or raised ``TransferError`` no byte moves any more; what was registered stays
mapped until ``forget``.
Threading: calls may come from any thread; one runs at a time.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, final

import numpy as np

from blockyard.core.clock import Clock, SystemClock
from blockyard.core.errors import TransferError
from blockyard.tiers.block_moves import Direction
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.nixl.transfer_state import TransferState
from blockyard.tiers.nixl.ucx_agent import AddressArray, UcxAgent, UcxMemory, UcxTransfer

_DEADLINE_SECONDS: Final = 30.0
_EAGER_POLLS: Final = 3
_SHORTEST_NAP_SECONDS: Final = 20e-6
_LONGEST_NAP_SECONDS: Final = 200e-6
_PROBE_BYTES: Final = 8_192
_PROBE_PART: Final = 4_096


class UnendedTransferError(RuntimeError):
    """A request neither ended nor failed in time: its memory may still be written until this process ends.

    No ``BlockyardError`` on purpose: those tell that nothing is in flight any more.
    """


class CopyAgent(Protocol):
    """What the copies need of an agent; see ``UcxAgent``."""

    def register(self, memory: ByteArray) -> UcxMemory:
        """Make bytes reachable."""
        ...

    def deregister(self, memory: UcxMemory) -> None:
        """Forget bytes."""
        ...

    def post(self, direction: Direction, arena: AddressArray, engine: AddressArray, sizes: AddressArray) -> UcxTransfer:
        """Start a request, or raise ``TransferError`` if no byte will move."""
        ...

    def poll(self, transfer: UcxTransfer) -> TransferState:
        """Look at a request."""
        ...

    def finish(self, transfer: UcxTransfer) -> None:
        """Release a request that ended."""
        ...

    def close(self) -> None:
        """Release the agent."""
        ...


@final
class UcxCopies:
    """Copies between memories of this process through NIXL. Make one with ``open``."""

    def __init__(
        self, agent: CopyAgent, *, clock: Clock | None = None, nap: Callable[[float], None] = time.sleep
    ) -> None:
        """Copy with ``agent``; use ``open``, which also tries it out."""
        self._agent = agent
        self._clock = clock or SystemClock()
        self._nap = nap
        self._lock = threading.Lock()
        self._memories: set[UcxMemory] = set()
        self._unended: UcxTransfer | None = None

    @classmethod
    def open(cls) -> "UcxCopies":
        """Make an agent and copy a few bytes there and back with it.

        Raises:
            TransferError: NIXL or UCX does not work here; says why.
        """
        copies = cls(UcxAgent())
        try:
            _probe(copies)
        except TransferError:
            copies.close()
            raise
        return copies

    def register(self, memory: ByteArray) -> UcxMemory:
        """Make contiguous bytes reachable for ``copy``; they stay mapped until ``forget``.

        Raises:
            TransferError: NIXL refused the memory.
        """
        with self._lock:
            self._check()
            registered = self._agent.register(memory)
            self._memories.add(registered)
            return registered

    def forget(self, memory: UcxMemory) -> None:
        """Let go of memory; harmless when repeated, and after a request that never ended, which may use it."""
        with self._lock:
            if self._unended is None and memory in self._memories:
                self._memories.discard(memory)
                self._agent.deregister(memory)

    def copy(self, direction: Direction, arena: AddressArray, engine: AddressArray, sizes: AddressArray) -> None:
        """Copy part i of ``sizes[i]`` bytes between two addresses; returns when all have arrived.

        Args:
            direction: READ copies from the engine to the arena, WRITE the other way.
            arena: addresses on the arena's side.
            engine: addresses on the engine's side.
            sizes: bytes of each part.

        Raises:
            TransferError: a part lies outside of registered memory, or the request failed; nothing moves any more.
            UnendedTransferError: the request did not end in time; end this process.
        """
        if not len(sizes):
            return
        with self._lock:
            self._check()
            transfer = self._agent.post(direction, arena, engine, sizes)
            state = self._wait(transfer)
            self._agent.finish(transfer)
        if state is not TransferState.DONE:
            raise TransferError("a request of NIXL failed", parts=len(sizes), bytes=int(sizes.sum()))

    def close(self) -> None:
        """Let go of everything, unless a request never ended. Idempotent."""
        with self._lock:
            if self._unended is not None:
                return
            for memory in self._memories:
                # Going anyway; a memory that the SDK does not know needs no forgetting.
                with suppress(TransferError):
                    self._agent.deregister(memory)
            self._memories.clear()
            self._agent.close()

    def _check(self) -> None:
        if self._unended is not None:
            raise UnendedTransferError("an earlier request of NIXL never ended; end this process")

    def _wait(self, transfer: UcxTransfer) -> TransferState:
        deadline = self._clock.monotonic() + _DEADLINE_SECONDS
        polls = 0
        while (state := self._agent.poll(transfer)) is TransferState.RUNNING:
            polls += 1
            if self._clock.monotonic() >= deadline:
                self._unended = transfer
                raise UnendedTransferError(f"a request of NIXL did not end within {_DEADLINE_SECONDS:g} s")
            if polls > _EAGER_POLLS:
                self._nap(min(_LONGEST_NAP_SECONDS, _SHORTEST_NAP_SECONDS * (polls - _EAGER_POLLS)))
        return state


def _probe(copies: UcxCopies) -> None:
    """Bring the parts of a pattern to other places and back in other order.

    Raises:
        TransferError: they came back changed, or did not move.
    """
    pattern = np.arange(_PROBE_BYTES, dtype=np.uint64).astype(np.uint8) ^ np.uint8(0x5A)
    pattern[_PROBE_PART:] = ~pattern[_PROBE_PART:]
    engine, arena = copies.register(pattern.copy()), copies.register(np.zeros(_PROBE_BYTES, np.uint8))
    parts = np.array([0, _PROBE_PART], np.uint64)
    sizes = np.full(2, _PROBE_PART, np.uint64)
    at_engine, at_arena = np.uint64(engine.address) + parts, np.uint64(arena.address) + parts[::-1]
    copies.copy(Direction.READ, at_arena, at_engine, sizes)
    engine.memory[:] = 0
    copies.copy(Direction.WRITE, at_arena, at_engine, sizes)
    swapped = np.array_equal(arena.memory, np.roll(pattern, _PROBE_PART))
    returned = np.array_equal(engine.memory, pattern)
    copies.forget(engine)
    copies.forget(arena)
    if not swapped or not returned:
        raise TransferError("NIXL copied the wrong bytes", backend="UCX")
