"""Bound on request bodies, enforced on the bytes that arrive and not on what a header promises.

Threading: one event loop; no state between requests.
"""

from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blockyard_block_manager.api.problems import problem

MAX_BODY_BYTES: Final = 1 << 20


class BodyLimit:
    """ASGI middleware: reads the body up to the bound, refuses beyond it, then passes the request on."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES) -> None:
        """Guard ``app``."""
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 413 where the body is too long."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return  # the client has gone
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._max_bytes:
                refusal = problem(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    "body-too-large",
                    "The request body is too large",
                    members={"limit_bytes": self._max_bytes},
                )
                await refusal(scope, receive, send)
                return
        await self._app(scope, _replay(bytes(body), receive), send)


def _replay(body: bytes, receive: Receive) -> Receive:
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
