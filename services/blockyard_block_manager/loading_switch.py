"""The switch that turns loads of this node off and on while everything runs.

Off, engines are told that every block is a MISS, and compute; stores go on, loads that run end as they would. It is for
operators who suspect loads of doing harm, so it acts at once and needs no restart of anything.
Invariants: on at the start of every life; nothing is written down, so a restart switches loads on.
Threading: one event loop.
"""

from collections.abc import Callable
from typing import final


@final
class LoadingSwitch:
    """Whether loads are on."""

    def __init__(self) -> None:
        """Loads are on."""
        self._enabled = True
        self._followers: list[Callable[[bool], None]] = []

    @property
    def enabled(self) -> bool:
        """Whether loads are on."""
        return self._enabled

    def follow(self, follower: Callable[[bool], None]) -> None:
        """Tell ``follower`` the state now, and each time it changes; it must not raise."""
        self._followers.append(follower)
        follower(self._enabled)

    def switch(self, enabled: bool) -> bool:
        """Turn loads on or off; returns whether that changed anything."""
        if enabled == self._enabled:
            return False
        self._enabled = enabled
        for follower in self._followers:
            follower(enabled)
        return True
