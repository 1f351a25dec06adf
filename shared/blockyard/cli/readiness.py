"""Waiting until services say that they are ready, and saying meanwhile what is missing.

A server that is away may still come; one that refuses the user's account will not think better of it, so that is waited
for only briefly.

Threading: one event loop.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import httpx

from blockyard.core.errors import ServerStartError

_READY_SECONDS: Final = 40.0
_POLL_SECONDS: Final = 0.02
_TELL_SECONDS: Final = 5.0
_REFUSED_SECONDS: Final = 10.0
_FORGOTTEN_SECONDS: Final = 5.0
REFUSALS: Final = (
    "refuses this user or password",
    "wants an account",
    "wants a password",
    "does not know this account",
    "does not belong to g4.access_key",
)
"""By these words of a service the settings of an account are wrong, and no server is away."""

Question = Callable[[], Awaitable[str]]
"""What a service is missing; empty when it is ready."""


def _no_log(_: str) -> str:
    return ""


async def wait_until_ready(
    questions: Mapping[str, Question], say: Callable[[str], None], log_tail: Callable[[str], str] = _no_log
) -> None:
    """Ask until nothing is missing; ``say`` is told every few seconds what is.

    Args:
        questions: by the name of the service, for people.
        say: takes a line.
        log_tail: end of the log of a service, by its name, where there is one to be shown.

    Raises:
        ServerStartError: one was not ready in time, or is refused something for good; the message says what it is
            missing.
    """
    missing = dict.fromkeys(questions, "no answer yet")
    refused: dict[str, tuple[float, float]] = {}
    told = time.monotonic()
    try:
        async with asyncio.timeout(_READY_SECONDS):
            while await _ask_again(questions, missing):
                if (name := _refused_for_good(missing, refused)) is not None:
                    raise _not_ready("it is refused", name, missing[name], log_tail)
                if time.monotonic() - told > _TELL_SECONDS:
                    told = time.monotonic()
                    for name, reason in missing.items():
                        say(f"  still waiting for {name}: {reason}")
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        name, reason = next(iter(missing.items()))
        raise _not_ready("not ready in time", name, reason, log_tail) from None


def _not_ready(what: str, name: str, reason: str, log_tail: Callable[[str], str]) -> ServerStartError:
    log = log_tail(name)
    detail = f"{what}: {reason}"
    return ServerStartError(f"{detail}; end of its log:\n{log}" if log else detail, server=name)


def _refused_for_good(missing: Mapping[str, str], spans: dict[str, tuple[float, float]]) -> str | None:
    """A service that has been refused for long enough; ``spans`` holds since when and when last.

    In between a refusal may look like a lost connection: servers refuse by closing it.
    """
    now = time.monotonic()
    for name, reason in missing.items():
        if any(words in reason for words in REFUSALS):
            first, last = spans.get(name, (now, now))
            spans[name] = (now if now - last > _FORGOTTEN_SECONDS else first, now)
    return next((name for name, (first, last) in spans.items() if last - first >= _REFUSED_SECONDS), None)


async def _ask_again(questions: Mapping[str, Question], missing: dict[str, str]) -> bool:
    """Ask those that miss something; whether one still does."""
    for name in tuple(missing):
        if reason := await questions[name]():
            missing[name] = reason
        else:
            del missing[name]
    return bool(missing)


async def missing_at(http: httpx.AsyncClient, url: str) -> str:
    """What the service at this address says that it is missing; empty when it is ready."""
    try:
        answer = await http.get(f"{url}/readyz")
    except httpx.HTTPError as error:
        return f"/readyz: {type(error).__name__}"
    return "" if answer.status_code == httpx.codes.OK else _failing_checks(answer)


def _failing_checks(answer: httpx.Response) -> str:
    """What /readyz says is missing, in one line."""
    try:
        failing = [f"{check['name']}: {check['detail']}" for check in answer.json()["checks"] if not check["ok"]]
    except (ValueError, KeyError, TypeError):
        return answer.text
    return "; ".join(failing) or "it is starting"
