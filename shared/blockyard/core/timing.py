"""Straight lines through measured times, which single wild measurements do not bend.

A line is fitted through the latest measurements: its slope is the median of the slopes between all pairs, its level a
quantile of what the slope leaves. Up to about a quarter of the measurements may be arbitrarily wrong without the line
following them; measurements beyond the window are forgotten, so that a change of the machine is learned. A long window
is fitted anew after every few measurements only: who asks for a line may be a thread that nothing should hold up.
Invariants: slope and level are never negative; below the least amount ever seen a line says what it says there.
Threading: owned by one thread; no clock, times come in.
"""

import math
from collections import deque
from dataclasses import dataclass
from functools import cache
from typing import Final, final

import numpy as np
import numpy.typing as npt

WINDOW: Final = 64
"""Measurements that a line is fitted through."""

_FIT_AT_ONCE: Final = 24
"""A window with more measurements than these is fitted anew after each eighth only."""
_FIT_AFTER: Final = 8


@final
@dataclass(frozen=True, slots=True)
class Line:
    """``seconds = level + slope * amount``."""

    level: float
    slope: float
    least: float = 0.0
    """Least amount that was measured; nothing smaller is believed to be faster."""

    def at(self, amounts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Seconds for each of these amounts."""
        return self.level + self.slope * np.maximum(amounts, self.least)


@final
class Measurements:
    """The latest measurements of one kind, and the line through them."""

    __slots__ = ("_line", "_minimum", "_news", "_points", "_quantile", "_through_zero")

    def __init__(self, minimum: int, quantile: float, *, through_zero: bool) -> None:
        """Trust nothing before ``minimum`` measurements.

        Args:
            minimum: measurements before there is a line.
            quantile: share of the measurements that lie below the line, as far as its slope explains them.
            through_zero: where all amounts are equal, time is taken as proportional to the amount; else as constant.
        """
        self._points: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._minimum = minimum
        self._quantile = quantile
        self._through_zero = through_zero
        self._line: Line | None = None
        self._news = 0
        """Measurements that the line does not know."""

    def __len__(self) -> int:
        """Measurements in the window."""
        return len(self._points)

    def add(self, amount: float, seconds: float) -> None:
        """One measurement; what no clock could have measured is left out."""
        if amount < 0 or seconds < 0 or not math.isfinite(amount + seconds):
            return
        self._points.append((amount, seconds))
        self._news += 1
        if len(self._points) <= _FIT_AT_ONCE or self._news >= _FIT_AFTER:
            self._line = None

    @property
    def line(self) -> Line | None:
        """The line through the measurements; None while there are too few."""
        if self._line is None and len(self._points) >= self._minimum:
            self._line, self._news = self._fit(), 0
        return self._line

    def _fit(self) -> Line:
        amounts, seconds = np.array(self._points, np.float64).T
        first, second = _pairs(len(amounts))
        run = amounts[second] - amounts[first]
        rise = seconds[second] - seconds[first]
        apart = run != 0
        if apart.all():
            slope = max(0.0, float(np.median(rise / run)))
        elif apart.any():
            slope = max(0.0, float(np.median(rise[apart] / run[apart])))
        else:
            slope = float(np.median(seconds)) / float(amounts[0]) if self._through_zero and amounts[0] else 0.0
        level = max(0.0, float(np.quantile(seconds - slope * amounts, self._quantile)))
        return Line(level, slope, float(amounts.min()))


@cache
def _pairs(count: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Both indices of every pair of so many measurements; the window bounds how many of these there are."""
    first, second = np.triu_indices(count, 1)
    return first, second
