"""A program in the engine's environment as a child: orders and answers are JSON lines, its log is a file.

Invariants: an answer that does not come in time, an error or the end of the program raise ``EngineChildError`` with the
end of its log. Threading: one thread.
"""

import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

from bench.engine.environment import ROOT, child_environment, engine_python

_SHOWN_LOG: Final = 4_000
_QUIT_SECONDS: Final = 30.0


class EngineChildError(Exception):
    """The engine's program failed; its log says why."""


@final
class EngineChild:
    """One running program; use as a context manager."""

    def __init__(self, program: str, log_file: Path, environment: Mapping[str, str] = {}) -> None:
        """Start the module ``program`` of ``bench.engine.programs``; it says nothing until it is asked."""
        self._log_file = log_file
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [engine_python(), "-m", f"bench.engine.programs.{program}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env=child_environment() | dict(environment),
                # A group of its own: whatever the engine starts ends with it.
                start_new_session=True,
            )

    def ask(self, order: str, timeout_seconds: float = 300.0, **arguments: Any) -> Any:
        """Give an order and wait for its answer.

        Raises:
            EngineChildError: it failed, ended, or took longer.
        """
        orders, answers = self._process.stdin, self._process.stdout
        if orders is None or answers is None:
            raise EngineChildError("the program has no pipes")
        try:
            orders.write(json.dumps({"order": order, **arguments}).encode() + b"\n")
            orders.flush()
        except BrokenPipeError:
            raise self._failed(f"ended before the order {order}") from None
        # One line per order and none unasked, so nothing can lie in the buffer of the stream that select misses.
        ready, _, _ = select.select([answers], [], [], timeout_seconds)
        line = answers.readline() if ready else b""
        if not line:
            raise self._failed(f"gave no answer to the order {order}")
        answer = json.loads(line)
        if "error" in answer:
            raise self._failed(f"failed in the order {order}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        """End the program and what it started. Idempotent."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_QUIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
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

    def _failed(self, what: str) -> EngineChildError:
        log = self._log_file.read_text(errors="replace")[-_SHOWN_LOG:]
        return EngineChildError(f"the engine's program {what}\n{log}")
