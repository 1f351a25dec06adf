"""A program of another interpreter as a child: orders and answers are JSON lines, its log is a file.

``bench.orders`` is the other end. Invariants: an answer that does not come in time, an error or the end of the program
raise ``ChildError`` with the end of its log; a program that was late is killed, since nobody knows what it answers
next. Threading: one thread.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from bench.errors import ChildError

ROOT: Final = Path(__file__).parents[1]
"""Folder of the checkout."""
_SHOWN_LOG: Final = 4_000
_QUIT_SECONDS: Final = 30.0


class Child:
    """One running program; use as a context manager."""

    def __init__(self, command: Sequence[str], log_file: Path, environment: Mapping[str, str]) -> None:
        """Start it; it says nothing until it is asked."""
        self._log_file = log_file
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=dict(environment),
                # A group of its own: whatever the program starts ends with it.
                start_new_session=True,
            )

    def ask(self, order: str, timeout_seconds: float = 300.0, **arguments: Any) -> Any:
        """Give an order and wait for its answer.

        Raises:
            ChildError: it failed, ended, or took longer.
        """
        orders, answers = self._process.stdin, self._process.stdout
        if orders is None or answers is None:
            raise ChildError("the program has no pipes")
        try:
            orders.write(json.dumps({"order": order, **arguments}).encode() + b"\n")
            orders.flush()
        except BrokenPipeError:
            raise self._failed(f"ended before the order {order}") from None
        # One line per order and none unasked, so nothing can lie in the buffer of the stream that select misses.
        ready, _, _ = select.select([answers], [], [], timeout_seconds)
        if not ready:
            self._kill()
            raise self._failed(f"gave no answer to the order {order} in {timeout_seconds:g} s")
        line = answers.readline()
        if not line:
            raise self._failed(f"ended in the order {order}")
        answer = json.loads(line)
        if "error" in answer:
            raise self._failed(f"failed in the order {order}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        """End the program and what it started. Idempotent."""
        if self._process.stdin is not None:
            # An order that could not be given any more lies in its buffer.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_QUIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        """The child itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.close()

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _failed(self, what: str) -> ChildError:
        log = self._log_file.read_text(errors="replace")[-_SHOWN_LOG:]
        return ChildError(f"the program {what}\n{log}")
