"""The one thread that copies and hashes payloads in this process; it takes loads before stores.

Work is a generator that yields after every item. The thread runs one step of the most urgent work at a time, so a
load that arrives while a large store is copied waits for one item, not for the whole store::

    run(lane, work) ──► heap (lane, arrival) ──► thread: next(work) ──► yielded: back to the heap
                                                                   └──► returned: result to the caller's loop

Invariants: work that was accepted runs to its end whatever becomes of the caller, because a copy that is half done
must not be forgotten: its destination may be given to somebody else only after the last write. ``close`` waits for
everything accepted before.
Threading: ``run`` is called on an event loop; generators run on the owned thread only, never two at a time. memmove
and hashing release the interpreter lock, so the loop goes on meanwhile.
"""

import asyncio
import heapq
import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, Self, TypeVar

from blockyard.core.errors import UnavailableError
from blockyard.core.vocabulary import Lane

Result = TypeVar("Result")
Outcome = TypeVar("Outcome")
Work = Generator[None, None, Result]
"""Steps of one piece of work; its return value is the result."""


class _Task(Generic[Result]):
    """Accepted work and where its end is reported."""

    __slots__ = ("_future", "_loop", "_work", "arrival", "lane")

    def __init__(self, lane: Lane, arrival: int, work: Work[Result], loop: asyncio.AbstractEventLoop) -> None:
        self.lane = lane
        self.arrival = arrival
        self._work = work
        self._loop = loop
        self._future: asyncio.Future[Result] = loop.create_future()

    @property
    def future(self) -> asyncio.Future[Result]:
        """Ends with the work."""
        return self._future

    def __lt__(self, other: "_Task[Any]") -> bool:
        return (self.lane, self.arrival) < (other.lane, other.arrival)

    def step(self) -> bool:
        """Run up to the next yield; False when the work has ended."""
        try:
            next(self._work)
        except StopIteration as end:
            self._report(self._succeed, end.value)
            return False
        except BaseException as error:  # noqa: BLE001 - carried to the caller, who owns the failure
            self._report(self._fail, error)
            return False
        return True

    def _report(self, settle: Callable[[Outcome], None], outcome: Outcome) -> None:
        try:
            self._loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:
            # The caller's loop is closed: nobody is left to be told.
            return

    def _succeed(self, result: Result) -> None:
        if not self._future.done():
            self._future.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self._future.done():
            self._future.set_exception(error)


class CopyThread:
    """Runs copying work in one thread of its own, most urgent lane first."""

    def __init__(self, name: str = "copies") -> None:
        """Start the thread."""
        self._condition = threading.Condition()
        self._waiting: list[_Task[Any]] = []
        self._arrivals = 0
        self._closing = False
        self._thread = threading.Thread(target=self._main, name=name)
        self._thread.start()

    async def run(self, lane: Lane, work: Work[Result]) -> Result:
        """Run ``work`` to its end and return what it returns.

        A cancelled caller stops waiting; the work itself goes on.

        Raises:
            UnavailableError: the thread was closed before.
            Exception: whatever the work raised.
        """
        with self._condition:
            if self._closing:
                raise UnavailableError("the copy thread is closed")
            self._arrivals += 1
            task = _Task(lane, self._arrivals, work, asyncio.get_running_loop())
            heapq.heappush(self._waiting, task)
            self._condition.notify()
        return await task.future

    def close(self) -> None:
        """Finish everything accepted, then end the thread. Blocks; idempotent."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()

    def __enter__(self) -> Self:
        """The thread itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _main(self) -> None:
        while (task := self._next()) is not None:
            if task.step():
                with self._condition:
                    heapq.heappush(self._waiting, task)

    def _next(self) -> _Task[Any] | None:
        with self._condition:
            while not self._waiting:
                if self._closing:
                    return None
                self._condition.wait()
            return heapq.heappop(self._waiting)
