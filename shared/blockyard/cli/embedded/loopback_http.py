"""One GET on loopback, for asking a starting server whether it is ready; needs no client library and no event loop."""

import http.client
from dataclasses import dataclass
from typing import Final

from blockyard.cli.embedded.ports import LOOPBACK

_TIMEOUT_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; status 0 when nothing answers HTTP there."""

    status: int
    body: bytes


def get(port: int, path: str) -> Answer:
    """GET ``path`` from the server on ``port``; never raises for a server that is not there yet."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except (OSError, http.client.HTTPException):
        return Answer(0, b"")
    finally:
        connection.close()
