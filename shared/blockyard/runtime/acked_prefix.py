"""How far a window of publications got: acknowledgements count only up to the first that is missing.

Threading: one event loop.
"""

from asyncio import Future
from collections.abc import Sequence
from typing import TypeVar

Ack = TypeVar("Ack")


def acked_prefix(waiting: Sequence[Future[Ack]]) -> tuple[int, BaseException | None]:
    """How many from the start were acknowledged, and the error of the first that failed; cancels the rest."""
    acked, first_error, unbroken = 0, None, True
    for future in waiting:
        if not future.done():
            future.cancel()
            unbroken = False
        elif (error := future.exception()) is not None:
            first_error = first_error or error
            unbroken = False
        elif unbroken:
            acked += 1
    return acked, first_error
