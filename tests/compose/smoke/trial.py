"""Start the stack, look at it, stop it; start it again for the proof, prove it, stop it: the same on every engine.

First as a user gets it, with engines that replay by themselves; then with the sizes of the proof run.
"""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

from tests.compose.smoke import checks
from tests.compose.smoke.checks import Stack
from tests.compose.smoke.compose import PROOF_FILE, Compose
from tests.compose.smoke.engine import Engine
from tests.compose.smoke.plan import say
from tests.compose.smoke.proof import prove
from tests.compose.smoke.shell import SmokeError


@final
class Trial:
    """One run on one engine."""

    def __init__(self, engine: Engine, compose: Compose, skipped: Sequence[str], up_options: Sequence[str]) -> None:
        """Run nothing yet.

        Args:
            engine: where the containers run.
            compose: the project.
            skipped: services that cannot run here.
            up_options: further options for starting.
        """
        self._engine = engine
        self._compose = compose
        self._skipped = skipped
        self._up_options = up_options

    def run(self, *, short: bool) -> dict[str, Any]:
        """Run everything once; returns what came out.

        Args:
            short: whether the proof run is the smaller one.

        Raises:
            SmokeError: an expectation does not hold; nothing runs any more all the same.
        """
        facts: dict[str, Any] = {"checks": {}}
        with self._running(self._compose) as (stack, seconds):
            facts["services"], facts["healthy_seconds"] = sorted(stack.services), seconds
            for check in checks.ALL:
                facts["checks"][check.__name__] = seen = check(stack)
                say(f"  {check.__name__.replace('_', ' ')}: {seen}")
        proof = dataclasses.replace(self._compose, files=(*self._compose.files, PROOF_FILE))
        with self._running(proof):
            facts["proof"] = prove(proof, short=short)
        return facts

    @contextmanager
    def _running(self, compose: Compose) -> Iterator[tuple[Stack, float]]:
        """The stack, all of it healthy, and the seconds until it was; gone afterwards."""
        everything = compose.config()["services"]
        services = {name: value for name, value in everything.items() if name not in self._skipped}
        try:
            say(f"starting {len(services)} services")
            began = time.monotonic()
            compose.up(sorted(services), *self._up_options)
            seconds = round(time.monotonic() - began, 1)
            say(f"all healthy after {seconds} s")
            yield Stack(self._engine, compose, services), seconds
        except SmokeError as error:
            say(compose.attempt("logs", "--no-color", "--tail", "5").text)
            # What failed comes last, and is not hidden by what may go wrong while stopping.
            raise SmokeError(f"{error}{self._stop(compose)}") from error
        except BaseException:
            self._stop(compose)
            raise
        if trouble := self._stop(compose):
            raise SmokeError(trouble)

    def _stop(self, compose: Compose) -> str:
        """Stop everything; what went wrong with it."""
        say("stopping")
        try:
            compose.down()
            found = self._engine.leftovers()
        except SmokeError as error:
            return f"\nnot stopped: {error}"
        return f"\nleft in the engine: {found}" if found else ""
