"""Bounds on request bodies: their size, by the bytes that arrive and not by what a header promises, and their time.

Threading: one event loop; no state between requests.
"""

import asyncio
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blockyard.core.errors import FrameTooLargeError
from blockyard_block_manager.api.problems import problem

MAX_BODY_BYTES: Final = 1 << 20
BODY_SECONDS: Final = 10.0
_TOO_SLOW: Final = problem(
    HTTPStatus.REQUEST_TIMEOUT,
    "request-timeout",
    "The request body did not arrive in time",
    "Send the whole body at once.",
    headers={"Connection": "close"},
)


class BodyLimit:
    """ASGI middleware: reads the body up to the bound, refuses beyond it, then passes the request on."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES, seconds: float = BODY_SECONDS) -> None:
        """Guard ``app``; a body has to arrive within ``seconds``."""
        self._app = app
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 413 where the body is too long, 408 where it does not arrive."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._read(receive)
        except TimeoutError:
            await _TOO_SLOW(scope, receive, send)
            return
        if body is None:
            return
        if len(body) > self._max_bytes:
            refusal = problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "body-too-large",
                "The request body is too large",
                FrameTooLargeError.remedy,
                members={"limit_bytes": self._max_bytes},
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The body, or the part of it that is too long already; None where the client has gone."""
        body = bytearray()
        more = True
        while more and len(body) <= self._max_bytes:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
