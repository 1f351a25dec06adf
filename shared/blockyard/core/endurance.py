"""How much may be written to a disk: a budget of bytes per day, as a token bucket over the injected clock.

A bucket that holds ``burst`` bytes and gains ``gain`` bytes per day lets through at most ``burst + gain`` within any
day, so both are cut from the budget: one hour's share may be written at once, the rest accrues.
Invariants: within any 24 hours at most ``bytes_per_day`` are spent, refunds aside; a call that raises has spent
nothing. All counts are whole bytes. A new life starts with a full bucket: what earlier lives wrote is not known.
Threading: owned by one thread.
"""

from typing import Final, final

from blockyard.core.clock import Clock
from blockyard.core.errors import KernelError
from blockyard.core.whole_numbers import is_some_whole, is_whole

_DAY_MICROSECONDS: Final = 86_400_000_000
_BURST_SHARE: Final = 24


@final
class EnduranceBudget:
    """Bytes that may be written."""

    __slots__ = ("_burst", "_clock", "_gain", "_level", "_started_at", "_taken_in")

    def __init__(self, bytes_per_day: int, item_bytes: int, clock: Clock) -> None:
        """Start with a full bucket, large enough for one item.

        Raises:
            KernelError: one item is more than the budget of a day.
        """
        if not (is_some_whole(bytes_per_day) and is_whole(item_bytes, 1, bytes_per_day)):
            raise KernelError("a day's budget is at least one item", item=str(item_bytes), budget=str(bytes_per_day))
        self._burst: Final = max(bytes_per_day // _BURST_SHARE, item_bytes)
        # One byte less, since what accrues is rounded at both ends of a day.
        self._gain: Final = max(bytes_per_day - self._burst - 1, 0)
        self._clock = clock
        self._started_at = clock.monotonic()
        self._taken_in = 0
        self._level = self._burst

    @property
    def burst_bytes(self) -> int:
        """Most bytes that may be written at once; at least one item."""
        return self._burst

    @property
    def available_bytes(self) -> int:
        """Bytes that may be written now."""
        elapsed = int((self._clock.monotonic() - self._started_at) * 1_000_000)
        accrued = elapsed * self._gain // _DAY_MICROSECONDS
        self._level = min(self._burst, self._level + accrued - self._taken_in)
        self._taken_in = accrued
        return self._level

    def affordable(self, item_bytes: int) -> int:
        """Items of this size that may be written now.

        Raises:
            KernelError: an item has no size.
        """
        if not is_whole(item_bytes, 1):
            raise KernelError("an item has a size", item_bytes=str(item_bytes))
        return self.available_bytes // item_bytes

    def spend(self, size_bytes: int) -> None:
        """These bytes will be written.

        Raises:
            KernelError: no number of bytes, or more than may be written now; nothing was spent.
        """
        _require_bytes(size_bytes)
        if size_bytes > self.available_bytes:
            raise KernelError("the write budget is used up", asked=size_bytes, available=self._level)
        self._level -= size_bytes

    def refund(self, size_bytes: int) -> None:
        """These bytes were spent and are known not to have been written.

        Raises:
            KernelError: no number of bytes; nothing was given back.
        """
        _require_bytes(size_bytes)
        self._level = min(self._burst, self.available_bytes + size_bytes)


def _require_bytes(size_bytes: int) -> None:
    if not is_whole(size_bytes):
        raise KernelError("no number of bytes", size_bytes=str(size_bytes))
