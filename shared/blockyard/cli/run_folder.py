"""The folder of one run: data, sockets and logs of everything the command starts, removed at its end.

Invariants: mode 0700; the path is short, because unix socket paths may have about 100 bytes; after
:meth:`RunFolder.close` nothing of it is left unless ``keep`` was asked for. A janitor process removes it also when this
process is killed.
Threading: one owner, the main thread (it starts the janitor).
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path
from typing import Final, Self

from blockyard.cli import janitor
from blockyard.core.errors import ConfigurationError

_PREFIX: Final = "blockyard-"
_UNFIT: Final = ("Cc", "Cs")
_JANITOR_SECONDS: Final = 10.0
_STAT_BLOCK_BYTES: Final = 512
_MAX_PARENT_BYTES: Final = 45
"""Leaves room for the longest socket path below: 100 bytes less run folder, node, service and socket."""


class RunFolder:
    """A fresh private folder under the system's folder for temporary files."""

    def __init__(self, parent: Path | None = None, *, keep: bool = False) -> None:
        """Make the folder and start its janitor.

        Args:
            parent: where to make it; by default the system's folder for temporary files, unless its name is too long.
            keep: leave everything in place at the end, for looking at it.

        Raises:
            ConfigurationError: no folder can be made there.
        """
        self.path = _fresh_folder(parent)
        self.keep = keep
        self._data: list[Path] = []
        self._strays: list[Path] = []
        self._janitor = subprocess.Popen(
            (sys.executable, "-I", "-S", janitor.__file__), stdin=subprocess.PIPE, start_new_session=True
        )
        self.add_outside(self.path)
        if keep:
            self._tell(b"keep")

    @property
    def logs(self) -> Path:
        """Folder of log files."""
        folder = self.path / "logs"
        folder.mkdir(exist_ok=True)
        return folder

    def folder(self, name: str) -> Path:
        """A folder below, made if missing."""
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        return folder

    def add_outside(self, *paths: Path) -> None:
        """Remove these too at the end, unless everything is kept: data of the run that lies elsewhere."""
        for path in paths:
            self._data.append(path)
            self._tell(b"remove " + os.fsencode(path))

    def add_stray(self, *paths: Path) -> None:
        """Remove these at the end in any case: what a server insists to make in a place for everybody."""
        for path in paths:
            if path not in self._strays:
                self._strays.append(path)
                self._tell(b"stray " + os.fsencode(path))

    def disk_bytes(self) -> int:
        """Disk that it takes now."""
        total = 0
        for folder, _, files in os.walk(self.path):
            for name in files:
                # A file may vanish between listing and asking.
                with contextlib.suppress(FileNotFoundError):
                    total += os.lstat(os.path.join(folder, name)).st_blocks * _STAT_BLOCK_BYTES
        return total

    def close(self) -> None:
        """Remove everything (strays only, when kept). Call when no process of the run is left."""
        if self._janitor.stdin is not None:
            for path in self._strays if self.keep else (*self._strays, *self._data):
                janitor.remove(str(path))
            # A dead janitor cannot read on; what it would have done is done above.
            with contextlib.suppress(BrokenPipeError):
                self._janitor.stdin.close()
        try:
            self._janitor.wait(_JANITOR_SECONDS)
        except subprocess.TimeoutExpired:
            self._janitor.kill()
            self._janitor.wait()

    def _tell(self, order: bytes) -> None:
        if self._janitor.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._janitor.stdin.write(order + b"\0")
                self._janitor.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _fresh_folder(parent: Path | None) -> Path:
    place = parent
    try:
        place = place or _short_parent()
        return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    except OSError as error:
        reason = error.strerror or str(error)
        where = {} if place is None else {"folder": str(place)}
        raise ConfigurationError("cannot make a folder for the run", key="TMPDIR", reason=reason, **where) from error


def _short_parent() -> Path:
    # Asked for itself: the library goes elsewhere without a word where this one cannot be used.
    usual = os.path.abspath(os.environ.get("TMPDIR") or tempfile.gettempdir())
    # Names with line breaks or bytes that are no text can neither be shown nor passed on in settings.
    if any(unicodedata.category(character) in _UNFIT for character in usual):
        raise ConfigurationError(
            "the name of the folder for temporary files has control characters or is not UTF-8",
            key="TMPDIR",
            folder=ascii(usual),
        )
    return Path(usual) if len(os.fsencode(usual)) <= _MAX_PARENT_BYTES else Path("/tmp")
