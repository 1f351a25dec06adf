"""Numbers as Grafana writes them.

Threading: pure functions.
"""

import math
from collections.abc import Sequence
from typing import Final

from deploy.dashboards.panels import Unit

_SUFFIX: Final = "suffix:"
_SHORT: Final = ((1e12, " Tri"), (1e9, " Bil"), (1e6, " Mil"), (1e3, " K"))
_RATE: Final = ((1e9, " GB/s"), (1e6, " MB/s"), (1e3, " kB/s"), (1, " B/s"))
_BYTES: Final = ((1 << 40, " TiB"), (1 << 30, " GiB"), (1 << 20, " MiB"), (1 << 10, " KiB"), (1, " B"))
_SECONDS: Final = ((86_400, " day"), (3_600, " hour"), (60, " min"), (1, " s"), (1e-3, " ms"), (1e-6, " µs"))


def text_of(value: float, unit: Unit, now: float = 0.0) -> str:
    """A value with its unit; ``now`` is the time in seconds that *ago* refers to."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if unit.startswith(_SUFFIX):
        return f"{_digits(value)} {unit.removeprefix(_SUFFIX)}"
    match unit:
        case Unit.SHARE:
            return f"{_digits(100 * value)}%"
        case Unit.SECONDS:
            return _scaled(value, _SECONDS) if value else "0 s"
        case Unit.BYTES:
            return _scaled(value, _BYTES) if value else "0 B"
        case Unit.BYTES_PER_SECOND:
            return _scaled(value, _RATE) if value else "0 B/s"
        case Unit.AGO:
            return f"{_scaled(max(1.0, now - value / 1_000), _SECONDS[:4])} ago"
        case _:
            return _scaled(value, _SHORT)


def _scaled(value: float, steps: Sequence[tuple[float, str]]) -> str:
    for step, name in steps:
        if abs(value) >= step:
            return f"{_digits(value / step)}{name}"
    step, name = steps[-1] if steps[-1][0] < 1 else (1, "")
    return f"{_digits(value / step)}{name}"


def _digits(value: float) -> str:
    """Three digits that count, and no zeros behind the point."""
    if value == 0 or abs(value) >= 1_000:
        return f"{value:,.0f}".replace(",", "")
    places = max(0, 2 - math.floor(math.log10(abs(value)))) if abs(value) >= 0.01 else 4
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
