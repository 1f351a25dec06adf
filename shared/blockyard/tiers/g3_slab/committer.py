"""The thread that commits header pages of one slab: it alone writes them, and it alone syncs the file.

    event loop --changes--> committer thread: [wait: interval or bytes] -> pages -> sync -> results --future--> loop

Invariants: those of the commit cycle. A sync that failed fails the slab for good: what the device still had in its
cache is unknown, and a second sync could report success without it.
Threading: ``payloads_written`` and ``retired`` from any thread; ``step`` from one thread at a time: the committer's own
once ``start`` was called, the caller's in tests that drive it by hand.
"""

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from blockyard.core.clock import Clock, SystemClock
from blockyard.core.errors import StorageError
from blockyard.core.vocabulary import BlockId, ItemStatus
from blockyard.tiers.base import MoveOutcome, SlabFile
from blockyard.tiers.g3_slab.commit_cycle import CommitBatch, CommitCycle, PageChange
from blockyard.tiers.g3_slab.header_pages import HeaderPages

_LOG = logging.getLogger(__name__)
_STOP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """How much may wait for a commit."""

    interval_seconds: float = 0.01
    max_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One header page that a caller wants on disk."""

    slot: BlockId
    record: bytes
    payload_bytes: int = 0


@final
class Committer:
    """Runs the commit cycles of one slab."""

    def __init__(self, file: SlabFile, pages: HeaderPages, policy: CommitPolicy, clock: Clock | None = None) -> None:
        """Commit ``pages`` of ``file``; no thread runs before ``start``."""
        self._file = file
        self._pages = pages
        self._clock = clock or SystemClock()
        self._cycle = CommitCycle(policy.interval_seconds, policy.max_bytes)
        self._changed = threading.Condition()
        self._stopping = False
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="g3-commit", daemon=True)

    @property
    def failure(self) -> str:
        """Why the slab failed for good; empty while it works."""
        return self._failure

    def start(self) -> None:
        """Run cycles in a thread of its own from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Commit everything that waits, then end the thread; harmless when repeated.

        Raises:
            StorageError: the device did not answer in time.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)
            if self._thread.is_alive():
                raise StorageError("a sync of the slab never ended")

    def payloads_written(self, requests: Sequence[PageRequest]) -> CommitBatch:
        """Commit READY pages of payloads whose writes are finished; ``done`` resolves when they are durable."""
        return self._submit(requests, self._cycle.payloads_written)

    def retired(self, requests: Sequence[PageRequest]) -> CommitBatch:
        """Commit FREE or BAD pages; ``done`` resolves when they are durable."""
        return self._submit(requests, self._cycle.retired)

    def step(self) -> None:
        """Run one cycle now; nothing happens if nothing waits."""
        with self._changed:
            pages = self._cycle.take_pages()
        outcomes = self._pages.write(pages)
        failed = [pair for pair in zip(pages, outcomes, strict=True) if pair[1] is not MoveOutcome.DONE]
        with self._changed:
            self._cycle.drop([change for change, _ in failed])
            self._cycle.begin_sync()
            needs_sync = self._cycle.needs_sync
        for change, outcome in failed:
            change.settle(outcome.status)
        if not needs_sync:
            return
        try:
            self._file.sync()
        except StorageError as error:
            self._fail(str(error))
            return
        with self._changed:
            durable = self._cycle.end_sync()
        for change in durable:
            change.settle(ItemStatus.OK)

    def _submit(self, requests: Sequence[PageRequest], hand_over: Callable[[list[PageChange]], None]) -> CommitBatch:
        batch = CommitBatch(len(requests))
        now = self._clock.monotonic()
        changes = [
            PageChange(request.slot, request.record, request.payload_bytes, now, batch, index)
            for index, request in enumerate(requests)
        ]
        with self._changed:
            refused = bool(self._failure) or self._stopping
            if not refused:
                hand_over(changes)
                self._changed.notify()
        if refused:
            for change in changes:
                change.settle(ItemStatus.IO_ERROR)
        return batch

    def _run(self) -> None:
        try:
            while self._wait():
                self.step()
        except Exception as error:  # noqa: BLE001 - the thread's supervisor: without it every waiter would hang
            _LOG.critical("the commit thread failed", exc_info=error)
            self._fail(f"the commit thread failed: {error}")

    def _wait(self) -> bool:
        """Wait until a cycle is due. False once everything is committed and the thread is told to stop."""
        with self._changed:
            while True:
                if self._stopping:
                    return not self._cycle.is_idle
                delay = self._cycle.due_in(self._clock.monotonic())
                if delay <= 0:
                    return True
                self._changed.wait(None if math.isinf(delay) else delay)

    def _fail(self, reason: str) -> None:
        _LOG.critical("the slab failed for good, it serves reads only: %s", reason)
        with self._changed:
            self._failure = reason
            waiting = self._cycle.abandon()
        for change in waiting:
            change.settle(ItemStatus.IO_ERROR)
