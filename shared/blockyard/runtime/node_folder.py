"""Where a node keeps what outlives its processes: one folder per service below the node folder.

::

    <node folder>/id                    32 hex digits; names this folder to other nodes, in leases and slab files
    <node folder>/<service>/lock        held for life by the running process, which writes its pid and host into it
                            epoch       number of the last life
                            http.json   {"url": ...} while the service answers HTTP
                            channel.sock
    <node folder>/g3/                   slab files, unless the settings name another folder

Invariants: a file is replaced as a whole (written aside, synced, renamed), so a reader sees the old or the new one;
the id never changes once written, however many processes start at once.
Threading: values and short blocking file calls; used at start and stop.
"""

import errno
import json
import os
import secrets
import tempfile
from dataclasses import dataclass
from enum import StrEnum, unique
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blockyard.core.errors import ConfigurationError, DiskFullError, ForeignFileError

if TYPE_CHECKING:
    # Not for the health check, which wants a folder and cannot wait for the tree of settings.
    from blockyard.runtime.settings import NodeSettings

DEFAULT_FOLDER: Final = Path("/var/lib/blockyard")
FOLDER_ID_BYTES: Final = 16
_FOLDER_MODE: Final = 0o700
_KERNEL_FOLDERS: Final = ("/proc", "/sys")


@unique
class ServiceName(StrEnum):
    """Services of a node, as in commands, folders and logs."""

    BLOCK_MANAGER = "block-manager"
    OFFLOAD_WORKER = "offload-worker"
    REMOTE_TIER = "remote-tier"


@dataclass(frozen=True, slots=True)
class ServiceFolder:
    """State folder of one service."""

    service: ServiceName
    path: Path

    @property
    def lock(self) -> Path:
        """Lock file: held by the running process."""
        return self.path / "lock"

    @property
    def epoch(self) -> Path:
        """Number of the last life."""
        return self.path / "epoch"

    @property
    def http(self) -> Path:
        """Address of the HTTP side, there while it is up."""
        return self.path / "http.json"

    @property
    def socket(self) -> Path:
        """Channel that this service serves."""
        return self.path / "channel.sock"

    def check(self) -> None:
        """Whether ``create`` could succeed, as far as can be told without making anything.

        Raises:
            ConfigurationError: a file is in the way, or the folder would lie where nothing can be made.
        """
        _check_folder(self.path)

    def create(self) -> None:
        """Make the folder if it is missing, readable by its user only.

        Raises:
            ConfigurationError: the folder cannot be made or written.
            DiskFullError: its disk is full.
        """
        _make_folder(self.path)

    def write_http(self, url: str) -> None:
        """Publish where HTTP is answered."""
        replace_file(self.http, json.dumps({"url": url}).encode())

    def remove_http(self) -> None:
        """Withdraw the address; harmless where there is none."""
        self.http.unlink(missing_ok=True)

    def read_http(self) -> str | None:
        """Address written by the running service; None where there is none."""
        try:
            url = json.loads(self.http.read_bytes())["url"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ForeignFileError("not an address file", path=str(self.http)) from error
        return str(url)


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """Folder of one node, on a local file system."""

    path: Path

    @classmethod
    def of(cls, settings: "NodeSettings") -> "NodeFolder":
        """Folder that the settings name, as an absolute path."""
        return cls(settings.node.folder.absolute())

    def service(self, name: ServiceName) -> ServiceFolder:
        """Folder of a service; not created."""
        return ServiceFolder(name, self.path / name)

    def slabs(self, settings: "NodeSettings") -> Path:
        """Folder of the G3 slab files; not created."""
        return settings.g3.folder.absolute() if settings.g3.folder is not None else self.path / "g3"

    def identify(self) -> str:
        """Id of this folder (32 hex digits), made at the first call ever.

        Raises:
            ConfigurationError: the folder cannot be made or written.
            DiskFullError: its disk is full.
            ForeignFileError: the id file holds something else.
        """
        _make_folder(self.path)
        target = self.path / "id"
        try:
            if not target.exists():
                _write_once(target, secrets.token_hex(FOLDER_ID_BYTES).encode())
            text = target.read_text(errors="replace")
        except OSError as error:
            raise unusable(target, error) from error
        if len(text) != 2 * FOLDER_ID_BYTES or not set(text) <= set("0123456789abcdef"):
            raise ForeignFileError("not the id of a node folder", path=str(target))
        return text


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file so that after a crash it holds the old or the new bytes, and the new ones once this returned.

    Raises:
        ConfigurationError: the folder cannot be written.
        DiskFullError: its disk is full.
    """
    try:
        fresh = _write_aside(path, data)
        try:
            fresh.replace(path)
        except OSError:
            fresh.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise unusable(path, error) from error


def _write_once(path: Path, data: bytes) -> None:
    """Write a file unless it is there: of processes that start together one wins, and all read its bytes."""
    fresh = _write_aside(path, data)
    try:
        # A link fails where the name is taken.
        os.link(fresh, path)
        _sync_folder(path.parent)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()


def _write_aside(path: Path, data: bytes) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    fresh = Path(name)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    return fresh


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "no permission to write")
    except OSError as error:
        raise unusable(path, error) from error


def _check_folder(path: Path) -> None:
    try:
        present = next(folder for folder in (path, *path.parents) if folder.exists())
        if not present.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
        # The files of the kernel say that their folders can be written, and then make nothing.
        if any(present.resolve().is_relative_to(folder) for folder in _KERNEL_FOLDERS):
            raise OSError(errno.EROFS, "files of the kernel, not a disk")
        if not os.access(present, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "no permission to write")
    except OSError as error:
        raise unusable(path, error) from error


def unusable(path: Path, error: OSError) -> ConfigurationError | DiskFullError:
    """What to raise for a system error about a file of the state folder: a full disk is no wrong setting."""
    where = {"key": "node.folder", "path": str(path), "reason": error.strerror or str(error)}
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError("cannot use the state folder", **where)
    otherwise = "let node.folder name another one"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        otherwise = f"make it writable for the user of this process, or {otherwise}"
    return ConfigurationError(f"cannot use the state folder: {otherwise}", **where)
