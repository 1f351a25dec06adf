"""One life of a service: the lock that proves it, and the epoch that names it.

Invariants: at most one process holds the lock of a service folder; the lock ends with the process, whatever ends it
(the descriptor is closed on exec, so no child keeps it). Epochs of one folder only rise, over restarts and clock steps;
an epoch is durable before anybody hears of it. After a lost folder the wall clock carries it on. Nothing is decided by
a process id: the services of a node may run in containers of their own, each with number 1.
Threading: short blocking file calls, used at start and stop.
"""

import fcntl
import os
import socket
import time
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Final, Self

from blockyard.core.clock import Clock
from blockyard.core.errors import AlreadyRunningError, ConfigurationError, ForeignFileError
from blockyard.core.vocabulary import Epoch
from blockyard.runtime.node_folder import ServiceFolder, replace_file, unusable

MAX_EPOCH: Final = 2**63 - 1
_MOST_HOLDER_BYTES: Final = 512
_PROBE_ATTEMPTS: Final = 5
_PROBE_PAUSE_SECONDS: Final = 0.02


class ProcessLife:
    """Held from start to end of a process; made by ``acquire``."""

    def __init__(self, lock: IO[bytes], epoch: Epoch) -> None:
        """Use ``acquire``."""
        self._lock = lock
        self._epoch = epoch

    @classmethod
    def acquire(cls, folder: ServiceFolder, clock: Clock) -> Self:
        """Take the lock and a new epoch.

        Raises:
            AlreadyRunningError: another process holds the lock; names it.
            ConfigurationError: the folder cannot be used.
            DiskFullError: its disk is full.
            ForeignFileError: the epoch file holds no number.
        """
        folder.create()
        try:
            descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(folder.lock, error) from error
        lock = open(descriptor, "r+b", buffering=0)
        try:
            _take(lock, folder)
            os.ftruncate(lock.fileno(), 0)
            os.pwrite(lock.fileno(), f"{os.getpid()} {socket.gethostname()}".encode(), 0)
            return cls(lock, _next_epoch(folder, clock.wall_ms()))
        except OSError as error:
            lock.close()
            raise unusable(folder.lock, error) from error
        except BaseException:
            lock.close()
            raise

    @property
    def epoch(self) -> Epoch:
        """Name of this life."""
        return self._epoch

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        self._lock.close()

    def __enter__(self) -> Self:
        """Use as a context; releases at the end."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release."""
        self.release()


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds a lock, as it says itself; for people."""

    pid: int
    """In its own container, where it runs in one; 0 where it has not written it yet."""
    host: str
    """Name of the machine or container."""


def holder_of(folder: ServiceFolder) -> LockHolder | None:
    """Who holds the lock of a service; None where nobody does, or there is none."""
    try:
        return _holder_now(folder)
    except FileNotFoundError:
        return None


def is_over(folder: ServiceFolder, life: Epoch | None) -> bool:
    """Whether a life of a service has certainly ended, its memory given back: the one named, or whichever was last.

    Nobody holds the lock, or a later life has written its epoch, which takes the lock. False where that cannot be told:
    files that cannot be read, and a lock that was removed, since whoever holds it goes on holding it unseen.
    """
    try:
        holder = _holder_now(folder)
        return holder is None or (life is not None and _stored_epoch(folder) > life)
    except FileNotFoundError:
        return life is None and _never_started(folder)
    except (ConfigurationError, ForeignFileError, OSError):
        return False


def _take(lock: IO[bytes], folder: ServiceFolder) -> None:
    for attempt in range(_PROBE_ATTEMPTS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # A probe (``holder_of``) takes the lock shared for a moment; only one that stays is a running process.
            if attempt < _PROBE_ATTEMPTS - 1:
                time.sleep(_PROBE_PAUSE_SECONDS)
        else:
            return
    holder = _holder_in(lock)
    raise AlreadyRunningError(
        f"{folder.service} is running on this state folder", pid=holder.pid, host=holder.host, folder=str(folder.path)
    )


def _holder_now(folder: ServiceFolder) -> LockHolder | None:
    with open(folder.lock, "rb", buffering=0) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder_in(lock)
        return None


def _holder_in(lock: IO[bytes]) -> LockHolder:
    pid, _, host = os.pread(lock.fileno(), _MOST_HOLDER_BYTES, 0).decode(errors="replace").partition(" ")
    return LockHolder(int(pid) if pid.isascii() and pid.isdigit() else 0, host)


def _next_epoch(folder: ServiceFolder, at_least: int) -> Epoch:
    epoch = Epoch(max(_stored_epoch(folder) + 1, at_least))
    replace_file(folder.epoch, str(epoch).encode())
    return epoch


def _never_started(folder: ServiceFolder) -> bool:
    try:
        folder.epoch.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _stored_epoch(folder: ServiceFolder) -> int:
    try:
        text = folder.epoch.read_text(errors="replace")
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise ConfigurationError(
            "cannot read the epoch", path=str(folder.epoch), reason=error.strerror or str(error)
        ) from error
    if not (text.isascii() and text.isdigit()) or int(text) >= MAX_EPOCH:
        raise ForeignFileError("not an epoch", path=str(folder.epoch))
    return int(text)
