"""Waiting until services say that they are ready, and saying meanwhile what is missing.

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

Question = Callable[[], Awaitable[str]]
"""What a service is missing; empty when it is ready."""


async def wait_until_ready(questions: Mapping[str, Question], say: Callable[[str], None]) -> None:
    """Ask until nothing is missing; ``say`` is told every few seconds what is.

    Args:
        questions: by the name of the service, for people.
        say: takes a line.

    Raises:
        ServerStartError: one was not ready in time; the message says what it is missing.
    """
    missing = dict.fromkeys(questions, "no answer yet")
    told = time.monotonic()
    try:
        async with asyncio.timeout(_READY_SECONDS):
            while await _ask_again(questions, missing):
                if time.monotonic() - told > _TELL_SECONDS:
                    told = time.monotonic()
                    for name, reason in missing.items():
                        say(f"  still waiting for {name}: {reason}")
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        name, reason = next(iter(missing.items()))
        raise ServerStartError(f"not ready in time: {reason}", server=name) from None


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
