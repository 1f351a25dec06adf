"""An event loop in a thread of its own, for engines whose threads must never wait: calls go in, nothing comes back.

A caller posts what is to be done with the open connection; what becomes of it is told by whatever the call itself
writes to, such as a deque that the caller drains. Calls begin in the order in which they were posted, and run side by
side from their first pause on.
Invariants: posting never blocks, never raises and never hands the interpreter over; start and stop are bounded in time;
a call that fails is counted and logged, of each kind of failure once.
Threading: any thread posts; the connection lives in the loop's thread.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Generic, TypeVar, final

from blockyard.connectors.wake_bell import WakeBell
from blockyard.core.errors import StartupError, UnavailableError

T = TypeVar("T")
Call = Callable[[T], Awaitable[None]]
_STOP_SECONDS: Final = 5.0
_log: Final = logging.getLogger(__name__)


@final
class ClientThread(Generic[T]):
    """Keeps one connection open in a thread of its own."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[T]], name: str) -> None:
        """Prepare; ``connect`` makes the connection within the loop, and must not wait for the other side."""
        self._connect = connect
        self._name = name
        self._posted: deque[Call[T]] = deque()
        self._bell = WakeBell()
        self._rung = False
        """Whether the loop is about to look. It takes this back before it looks, so whoever finds it set is seen."""
        self._ending = False
        self._ended = False
        """Whether nothing is begun any more. The thread says so before it forgets, so whoever posts meanwhile does."""
        self._started = threading.Event()
        self._thread: threading.Thread | None = None
        self._known_failures: set[str] = set()
        self.failures = 0
        """Calls that failed for another reason than that the node cannot be asked."""

    def start(self, timeout_seconds: float = _STOP_SECONDS) -> None:
        """Begin; returns when the loop runs.

        Raises:
            StartupError: it does not within this time.
        """
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        if not self._started.wait(timeout_seconds):
            raise StartupError("the thread that talks to the node did not start", seconds=timeout_seconds)

    @property
    def alive(self) -> bool:
        """Whether posted calls are carried out."""
        return self._thread is not None and self._thread.is_alive()

    def post(self, call: Call[T], *, wake: bool = True) -> None:
        """Have this called with the connection; after the end it is forgotten.

        Without ``wake`` it waits for ``flush``, or for the next call that wakes: a loop that is awake wants the
        interpreter, and a thread that computes for long has to hand it over in the middle.
        """
        self._posted.append(call)
        if self._ended:
            self._posted.clear()
        elif wake:
            self._wake()

    def flush(self) -> None:
        """Have everything that was posted begin."""
        if self._posted:
            self._wake()

    def stop(self, timeout_seconds: float = _STOP_SECONDS) -> bool:
        """Close the connection and end the thread; False where that takes longer, and goes on behind our back."""
        self._ending = True
        self._bell.ring()
        if self._thread is None:
            return True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _wake(self) -> None:
        if not self._rung:
            self._rung = True
            self._bell.ring()

    # --- in the thread ------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        # Outermost frame of the thread: an engine must go on without us, whatever this was.
        except Exception:  # noqa: BLE001
            self.failures += 1
            _log.exception("the connection to the node ended; the engine goes on without it")
        finally:
            self._ended = True
            self._posted.clear()
            self._started.set()

    async def _serve(self) -> None:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        self._bell.listen(loop, arrived.set)
        calls: set[asyncio.Task[None]] = set()
        async with self._connect() as connection:
            self._started.set()
            self._begin_posted(connection, calls)
            while not self._ending:
                await arrived.wait()
                arrived.clear()
                self._begin_posted(connection, calls)
            self._bell.ignore(loop)
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    def _begin_posted(self, connection: T, calls: set[asyncio.Task[None]]) -> None:
        self._rung = False
        while self._posted:
            task = asyncio.create_task(self._carry_out(self._posted.popleft(), connection))
            calls.add(task)
            task.add_done_callback(calls.discard)

    async def _carry_out(self, call: Call[T], connection: T) -> None:
        try:
            await call(connection)
        except UnavailableError:
            pass  # the node is away: an everyday state, which the connection itself reports
        # Supervisor of one call: the others, and the engine, go on.
        except Exception as error:  # noqa: BLE001
            self.failures += 1
            if (kind := f"{type(error).__name__} {getattr(error, 'detail', '')}") not in self._known_failures:
                self._known_failures.add(kind)
                _log.warning("a call to the node failed: %s", error, exc_info=error)
