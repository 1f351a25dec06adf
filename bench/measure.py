"""One measure and how it is taken: repeated, interleaved with what it is compared to, reported with its spread.

Both sides of a comparison run in turns (A B A B ...), so that a noisy machine disturbs both alike. ``ratio`` is ours to
theirs where more is better, else theirs to ours: above 1 always means that ours is better. It is the median of the
ratios of the rounds: what disturbs a round disturbs both of its sides.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Final, NamedTuple

import msgspec

ROUNDS: Final = 7
_REPORTED_VERSIONS: Final = ("blockyard", "numpy", "xxhash", "msgspec", "nixl-cu12", "obstore", "redis", "nats-py")


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of output; ``bar`` and ``stretch`` are wanted ratios, None where there is none."""

    case: str
    measure: str
    value: float | None = None
    unit: str = ""
    ratio: float | None = None
    bar: float | None = None
    stretch: float | None = None
    ok: bool = True
    n: int = 0
    spread: tuple[float, float] | None = None
    """Lowest and highest value of the rounds."""
    against: str = ""
    skipped: str = ""
    """Why there is no figure; empty where there is one."""
    versions: dict[str, str] = {}
    load: tuple[float, float, float] = (0.0, 0.0, 0.0)


class Timed(NamedTuple):
    """A round that times itself: it prepares something, or runs in another process."""

    amount: float
    seconds: float


Round = Callable[[], float | Timed]
"""Does a thing once and returns how much it did, and in which time where that is not the time of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Two ways to do one thing, in ``unit``s."""

    measure: str
    unit: str
    ours: Round
    theirs: Round
    against: str
    bar: float | None = None
    stretch: float | None = None

    def run(self, case: str, rounds: int = ROUNDS) -> Measure:
        """Rates per second of both sides, in turns; one unmeasured round first."""
        self.ours()
        self.theirs()
        own: list[float] = []
        other: list[float] = []
        for _ in range(rounds):
            own.append(_rate(self.ours))
            other.append(_rate(self.theirs))
        ratio = statistics.median(mine / peer for mine, peer in zip(own, other, strict=True))
        return Measure(
            case=case,
            measure=self.measure,
            value=statistics.median(own),
            unit=f"{self.unit}/s",
            ratio=ratio,
            bar=self.bar,
            stretch=self.stretch,
            ok=self.bar is None or ratio >= self.bar,
            n=rounds,
            spread=(min(own), max(own)),
            against=self.against,
            versions=versions(),
            load=os.getloadavg(),
        )


def bounded(
    case: str,
    measure: str,
    *,
    values: Sequence[float],
    unit: str,
    limit: float,
    wished: float | None = None,
) -> Measure:
    """Line for a cost that has a limit; the highest value counts, and the ratio is the limit to it."""
    worst = max(values)
    return Measure(
        case=case,
        measure=measure,
        value=worst,
        unit=unit,
        ratio=limit / worst,
        bar=1.0,
        stretch=None if wished is None else limit / wished,
        ok=worst <= limit,
        n=len(values),
        spread=(min(values), worst),
        against=f"at most {limit:g} {unit}",
        versions=versions(),
        load=os.getloadavg(),
    )


def skipped(case: str, measure: str, against: str, reason: str) -> Measure:
    """Line for a comparison whose other side is not here."""
    return Measure(
        case=case, measure=measure, against=against, skipped=reason, versions=versions(), load=os.getloadavg()
    )


def versions() -> dict[str, str]:
    """Versions of what takes part in the measures."""
    found = {"python": platform.python_version()}
    for name in _REPORTED_VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _rate(work: Round) -> float:
    start = time.perf_counter()
    done = work()
    if isinstance(done, Timed):
        return done.amount / done.seconds
    return done / (time.perf_counter() - start)
