"""A terminal in which a command of the documentation runs, and the comparison of what it shows with a page.

Threading: blocking calls with deadlines, for tests without an event loop.
"""

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

LEFT_OUT: Final = "…"
_SPAWN: Final = "import pty, sys; sys.exit(pty.spawn(['sh', '-eu', '-c', sys.argv[1]]) >> 8)"
_SIZE: Final = {"COLUMNS": "120", "LINES": "60", "TERM": "xterm"}
_STYLE: Final = re.compile(r"\x1b\[[0-9;?]*[mhl]")
_CURSOR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
_TOKEN: Final = re.compile(
    r"(?P<size>[\d,.]+ (?:[KMG]i)?B\b)|(?P<folder>/tmp/blockyard-\w+)|(?P<mover>nixl-posix-\w+)"
    r"|(?P<number>(?<![A-Za-z\d])\d[\d,.]*)|(?P<gap>[\s│┃]+)|(?P<literal>.)"
)
_SHAPES: Final = {
    "size": r"[\d,.]+ (?:[KMG]i)?B",
    "folder": r"\S*/blockyard-\w+",
    "mover": r"[\w-]+",
    "number": r"[\d,.]+",
    "gap": r"[\s│┃]+",
}


class Terminal:
    """One command in a terminal of its own; a context manager that ends it."""

    def __init__(self, command: str, folder: Path, environment: Mapping[str, str]) -> None:
        """Start the command."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SPAWN, command],
            cwd=folder,
            env=dict(environment) | _SIZE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._bytes = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def text(self) -> str:
        """Everything that was shown, whatever was drawn over it later."""
        return _CURSOR.sub("\n", _STYLE.sub("", self._bytes.decode(errors="replace")))

    def wait_for(self, holds: Callable[[str], bool], seconds: float) -> None:
        """Read until the text fulfils a condition.

        Raises:
            TimeoutError: it did not, or the command has ended; with the text so far.
        """
        deadline = time.monotonic() + seconds
        while not holds(self.text):
            if time.monotonic() > deadline or not self._read():
                raise TimeoutError(self.text[-4_000:])

    def interrupt(self, seconds: float) -> int:
        """Press Ctrl-C and wait for the end; the exit status."""
        if self._process.stdin is None:
            raise TypeError("started without a keyboard")
        self._process.stdin.write(b"\x03")
        self._process.stdin.flush()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._read():
            pass
        return self._process.wait(timeout=1.0)

    def _read(self) -> bool:
        if self._process.stdout is None:
            raise TypeError("started without a screen")
        ready, _, _ = select.select([self._process.stdout], [], [], 0.5)
        if not ready:
            return True
        piece = os.read(self._process.stdout.fileno(), 1 << 16)
        self._bytes += piece
        return bool(piece)


def pattern_of(shown: str) -> str:
    """What a line of a page stands for: the same words with other figures and names of temporary folders."""
    return "".join(_SHAPES.get(found.lastgroup or "", re.escape(found[0])) for found in _TOKEN.finditer(shown.strip()))


def missing_lines(shown: str, text: str) -> list[str]:
    """Lines of a page that a text does not have in this order."""
    lines, missing = iter(text.splitlines()), []
    for line in (line.strip() for line in shown.splitlines()):
        if line in ("", LEFT_OUT):
            continue
        form = re.compile(pattern_of(line))
        if not any(form.search(candidate) for candidate in lines):
            missing.append(line)
            lines = iter(text.splitlines())
    return missing


def printed_value(example: str, shown: str, text: str) -> str:
    """What a text has in the place where a page shows ``example``.

    Raises:
        LookupError: the page does not show it, or the text has no such line.
    """
    line = next((line for line in shown.splitlines() if example in line), None)
    if line is None:
        raise LookupError(f"the page shows no line with {example}")
    before, _, after = line.partition(example)
    found = re.findall(pattern_of(before) + r"\s*(\S+?)" + pattern_of(after) + r"\s*$", text, re.MULTILINE)
    if not found:
        raise LookupError(f"nothing printed has the form of: {line}")
    return str(found[-1])
