"""A peer: a program of its own interpreter that does the same work, round by round.

::

    with Peer("dynamo_radix", "ai-dynamo-runtime", chains=1_000) as peer:
        contest(ours=..., theirs=lambda: peer.round("lookup", lookups=500))

What a round prepares is not what it times: the program answers with how much it did and in how many seconds, so neither
pipes nor JSON count. Invariants: no package of a peer is imported here. Threading: one thread.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

from bench.child import Child
from bench.errors import MissingPeerError
from bench.measure import Timed
from bench.peers.environment import child_environment, obstacle, peers_python, version_of

_START_SECONDS: Final = 300.0
_ROUND_SECONDS: Final = 120.0


@final
class Peer:
    """One program of ``bench.peers.programs``; started and ended by its ``with`` block."""

    def __init__(self, program: str, package: str, **options: Any) -> None:
        """Name it; nothing runs yet.

        Args:
            program: module of ``bench.peers.programs``.
            package: distribution that it needs.
            options: arguments of its ``start``.
        """
        self.version = ""
        """Of the package; empty before it runs."""
        self._program = program
        self._package = package
        self._options = options
        self._stack = ExitStack()

    def round(self, work: str, timeout_seconds: float = _ROUND_SECONDS, **arguments: Any) -> Timed:
        """Have it do some work once.

        Args:
            work: method of the program that answers with ``amount`` and ``seconds``.
            timeout_seconds: after so long it is killed.
            arguments: of the method.

        Raises:
            ChildError: it failed, ended, or took longer.
        """
        answer = self.ask(work, timeout_seconds, **arguments)
        return Timed(answer["amount"], answer["seconds"])

    def ask(self, order: str, timeout_seconds: float = _ROUND_SECONDS, **arguments: Any) -> Any:
        """Call a method of the program whose answer is no time; same arguments and errors as ``round``."""
        return self._child.ask(order, timeout_seconds, **arguments)

    def __enter__(self) -> Self:
        """Start it and wait until it is ready.

        Raises:
            MissingPeerError: its package is not installed.
            ChildError: it does not start; its log says why.
        """
        self.version = version_of(self._package)
        if not self.version:
            raise MissingPeerError(obstacle(self._package))
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="blockyard-bench-"))
            command = [str(peers_python()), "-m", f"bench.peers.programs.{self._program}"]
            self._child = stack.enter_context(Child(command, Path(folder) / "log", child_environment()))
            self._child.ask("start", _START_SECONDS, **self._options)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._stack.close()
