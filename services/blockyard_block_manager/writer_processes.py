"""Processes of ranks as the system knows them: proof of life by pidfd, and records that outlive the block-manager.

A record is durable before its process gets the arena, and removed once the process is proven dead or has nothing to
write any more. The next life of the block-manager reads the records and grants nothing before each has attached or is
proven dead: the process number is free, another process has it (start time), or the machine was started again. In
another space of process numbers a number proves nothing, and such a writer counts as away; so does whoever a record
that cannot be read is about.
Threading: one event loop; files are written in a thread.
"""

import asyncio
import contextlib
import hashlib
import os
import select
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

import msgspec

from blockyard.core.arena_writers import RankId, RankProcess
from blockyard.core.errors import UnavailableError, UnsupportedOperationError
from blockyard.core.vocabulary import EngineId
from blockyard.runtime.logs import get_logger
from blockyard.runtime.node_folder import replace_file, unusable

_SUFFIX: Final = ".json"
_START_FIELD: Final = 19
"""Of ``/proc/<pid>/stat``, counted behind the name of the program: start in clock ticks since the machine started."""
_NO_NAMESPACE: Final = 0
_log: Final = get_logger(__name__)


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    engine: str
    dp_rank: int
    rank: int
    pid: int
    started: int
    boot: str
    namespace: int


@final
class WriterProcesses:
    """Watches processes and keeps their records; use as a context."""

    def __init__(self, folder: Path) -> None:
        """Keep records in ``folder``."""
        self._folder = folder
        self.on_death: Callable[[RankProcess], None] = lambda process: None
        """Told of each watched process that has ended, on the event loop."""
        self._watched: dict[RankProcess, int] = {}
        self._unreadable: dict[RankProcess, Path] = {}
        """Whoever these records are about may write the arena: only another arena settles it."""

    def __enter__(self) -> Self:
        """Use as a context."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Watch nobody any more; the records stay."""
        for process in list(self._watched):
            self._unwatch(process)

    def inherited(self) -> list[RankProcess]:
        """Processes that an earlier life gave the arena and that are not proven dead; they are watched from now on.

        Raises:
            ConfigurationError: the folder cannot be used.
        """
        return [process for process in self.recorded() if self._may_write(process)]

    def recorded(self) -> list[RankProcess]:
        """Processes that have a record, whatever became of them."""
        return [self._read(path) for path in sorted(self._folder.glob(f"*{_SUFFIX}"))]

    async def admit(self, process: RankProcess) -> None:
        """Watch the process of a rank and make its record durable: only then may it get the arena.

        Raises:
            UnavailableError: it is gone.
            ConfigurationError, DiskFullError: the record cannot be written.
        """
        self._watch(process)
        await asyncio.to_thread(self._write, process)
        if process not in self._watched:  # it died meanwhile, perhaps before there was a record to remove
            self.forget([process])
            raise UnavailableError("the process of the rank is gone", pid=process.pid)

    def forget(self, processes: Iterable[RankProcess]) -> None:
        """These processes have nothing to write any more, or are dead. Harmless where they were forgotten before."""
        for process in processes:
            self._unwatch(process)
            path = self._unreadable.pop(process, None) or self._path(process)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                # The next life finds it, and that its process is dead, or waits for it without need.
                _log.warning("the record of a writer cannot be removed", file=path.name, reason=error.strerror or "")

    # --- inside -------------------------------------------------------------------------------------------------------
    def _write(self, process: RankProcess) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise unusable(self._folder, error) from error
        rank = process.rank
        record = _Record(
            engine=rank.engine,
            dp_rank=rank.dp_rank,
            rank=rank.rank,
            pid=process.pid,
            started=process.started,
            boot=process.boot,
            namespace=process.namespace,
        )
        replace_file(self._path(process), msgspec.json.encode(record))

    def _path(self, process: RankProcess) -> Path:
        rank = process.rank
        name = hashlib.sha256(rank.engine.encode()).hexdigest()[:32]
        return self._folder / f"{process.pid}-{process.started}-{name}-{rank.dp_rank}-{rank.rank}{_SUFFIX}"

    def _read(self, path: Path) -> RankProcess:
        try:
            record = msgspec.json.decode(path.read_bytes(), type=_Record)
            rank = RankId(EngineId(record.engine), record.dp_rank, record.rank)
            return RankProcess(rank, record.pid, record.started, record.boot, record.namespace)
        except (OSError, msgspec.DecodeError):
            unknown = RankProcess(RankId(EngineId(f"of record {path.name}"), 0, 0), 0, 0, _boot(), _NO_NAMESPACE)
            if unknown not in self._unreadable:
                _log.warning("the record of a writer cannot be read: it counts as away", file=path.name)
            self._unreadable[unknown] = path
            return unknown

    def _may_write(self, process: RankProcess) -> bool:
        """Watch a process of an earlier life where that is possible; where it is gone, so is its record."""
        if not _is_dead(process):
            if process.namespace != _namespace():
                return True  # its number means nothing here: only its attach or another arena settles it
            with contextlib.suppress(UnavailableError):
                self._watch(process)
                return True
        self.forget([process])
        return False

    def _watch(self, process: RankProcess) -> None:
        if process in self._watched:
            return
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError as error:
            raise UnavailableError("the process of the rank is gone", pid=process.pid) from error
        if _started(process.pid) != process.started or _has_ended(pidfd):
            os.close(pidfd)
            raise UnavailableError("the process of the rank is gone", pid=process.pid)
        self._watched[process] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._died, process)

    def _died(self, process: RankProcess) -> None:
        self.forget([process])
        self.on_death(process)

    def _unwatch(self, process: RankProcess) -> None:
        pidfd = self._watched.pop(process, None)
        if pidfd is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)


def observe(rank: RankId, pid: int) -> RankProcess:
    """The life of the process with this number now.

    Raises:
        UnsupportedOperationError: the process cannot be seen from here.
        UnavailableError: it is gone.
    """
    if pid < 1:
        raise UnsupportedOperationError(
            "the process of a rank that copies by itself must be visible to the block-manager: share its process space",
            rank=rank.rank,
        )
    started = _started(pid)
    if started is None:
        raise UnavailableError("the process of the rank is gone", pid=pid)
    return RankProcess(rank, pid, started, _boot(), _namespace())


def _is_dead(process: RankProcess) -> bool:
    if process.boot != _boot():
        return True
    return process.namespace == _namespace() and _started(process.pid) != process.started


def _started(pid: int) -> int | None:
    """Start of a process; None where there is none, or it is only waited for by its parent."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in ("Z", "X") else int(fields[_START_FIELD])


def _has_ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 0)[0])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino
