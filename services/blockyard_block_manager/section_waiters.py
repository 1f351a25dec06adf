"""Waiting until the decisions have made something true.

Conditions are looked at when a section ends, so a waiter sees every state in which the tables rest.
Threading: one event loop.
"""

import asyncio
from collections.abc import Callable


class SectionWaiters:
    """Tasks that wait for conditions over the core."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def section_ended(self) -> None:
        """Wake those whose condition holds now."""
        still = []
        for condition, future in self._waiting:
            if future.done():
                continue
            if condition():
                future.set_result(None)
            else:
                still.append((condition, future))
        self._waiting = still

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when ``condition`` holds; it is pure and cheap."""
        if condition():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((condition, future))
        await future
