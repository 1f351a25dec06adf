"""How much memory the kernel lets this process and its neighbours in the same control group have.

A process that takes more is killed at the moment of taking, long after its start, so what is needed for certain is
compared with the limit before anything else. Both generations of control groups are read, with all groups around the
own one as far as they can be seen from here.

::

    /proc/<pid>/cgroup      0::/pod/worker                    own group, one line per hierarchy
    /proc/<pid>/mountinfo   ... / /sys/fs/cgroup ... cgroup2   where that hierarchy is mounted, and from which group on
    <mount>/pod/worker/memory.max, <mount>/pod/memory.max, ... the least of them holds

Invariants: what cannot be read or understood is no limit; never raises.
Threading: short blocking file reads, at start.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_UNLIMITED_BYTES: Final = 1 << 60
"""The first generation writes *no limit* as the largest number of pages; no machine has as much as this."""
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
_OUTER_LIMIT: Final = re.compile(r"^hierarchical_memory_limit (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The least limit that holds for this process."""

    bytes: int
    file: Path
    """Where it was found."""


def memory_limit(process: Path = Path("/proc/self"), root: Path = Path("/")) -> MemoryLimit | None:
    """Limit for a process; None where there is none.

    Args:
        process: its folder in ``/proc``.
        root: what the places of mounts are relative to.
    """
    groups, mounts = _text(process / "cgroup"), _text(process / "mountinfo")
    limits = [limit for folder in _folders(groups, mounts, root) for limit in _limits_of(folder)]
    return min(limits, key=lambda limit: limit.bytes, default=None)


def _limits_of(folder: Path) -> Iterator[MemoryLimit]:
    for name in ("memory.max", "memory.limit_in_bytes"):
        yield from _limit(folder / name, _text(folder / name).strip())
    # The first generation also tells the least limit of the groups around, those that cannot be seen included.
    outer = _OUTER_LIMIT.search(_text(folder / "memory.stat"))
    yield from _limit(folder / "memory.stat", outer[1] if outer else "")


def _limit(file: Path, text: str) -> Iterator[MemoryLimit]:
    if text.isascii() and text.isdigit() and int(text) < _UNLIMITED_BYTES:
        yield MemoryLimit(int(text), file)


def _folders(groups: str, mounts: str, root: Path) -> Iterator[Path]:
    """Folders of the own group and of all groups around it, in each hierarchy that may limit memory."""
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, group = rest.partition(":")
        if not colon or (controllers and "memory" not in controllers.split(",")):
            continue
        for first, place in _mounts(mounts, "memory" if controllers else None):
            mount = root / place.lstrip("/")
            own = mount / _below(group, first)
            yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(mount))


def _mounts(mounts: str, controller: str | None) -> Iterator[tuple[str, str]]:
    """First group and place of each mount of a hierarchy: of the one of ``controller``, or of the second generation."""
    for line in mounts.splitlines():
        head, dash, tail = line.partition(" - ")
        fields, kind = head.split(" "), tail.split(" ")
        if not dash or len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" if controller is None else kind[0] == "cgroup" and controller in kind[2].split(","):
            yield _plain(fields[3]), _plain(fields[4])


def _below(group: str, first: str) -> str:
    """Way from the first group of a mount to ``group``; the first group itself where ``group`` lies elsewhere."""
    first = first.rstrip("/")
    if ".." in group.split("/") or not f"{group}/".startswith(f"{first}/"):
        return ""
    return group[len(first) :].lstrip("/")


def _plain(field: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), field)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
