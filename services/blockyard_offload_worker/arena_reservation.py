"""Takes the memory of an arena at once, in the background.

The kernel counts a page of shared memory against the process that writes it first, and that may be the remote-tier,
whose memory limit knows nothing of the arena. So where memory is limited, the process that was given room for the arena
takes all of it before others write much.
Invariants: never fails the service: what cannot be taken now is taken when it is written. Contents stay as they are.
Threading: one thread of its own; ``close`` waits for its current step.
"""

import os
import threading
from typing import Final

from blockyard.runtime.logs import get_logger
from blockyard.tiers.arena import Arena

_STEP_BYTES: Final = 64 << 20
_log: Final = get_logger(__name__)


class ArenaReservation:
    """Begins when made."""

    def __init__(self, arena: Arena) -> None:
        """Reserve ``arena``, which may be closed before this."""
        self._fd = os.dup(arena.fd)
        self._bytes = arena.geometry.total_bytes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arena-memory", daemon=True)
        self._thread.start()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end; False where it is not reached in time."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop after the current step. Idempotent."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for start in range(0, self._bytes, _STEP_BYTES):
                if self._stopped.is_set():
                    return
                os.posix_fallocate(self._fd, start, min(_STEP_BYTES, self._bytes - start))
            _log.info("memory of the arena taken", bytes=self._bytes)
        except OSError as error:
            _log.warning("memory of the arena cannot be taken yet", bytes=self._bytes, reason=error.strerror or "")
        finally:
            os.close(self._fd)
