"""What the person in front sees: one live table on a terminal, lines every few seconds elsewhere.

Threading: one event loop; the live table is drawn by the loop, not by a thread of its own.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from blockyard.cli.engine_events import EngineStats
from blockyard.cli.failures import OutputError
from blockyard.cli.node_metrics import NodeFigures, TierFigures
from blockyard.core.vocabulary import Tier

_PLAIN_SECONDS: Final = 10.0
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class RunView:
    """State of a run at one moment; all figures are totals since its start."""

    seconds: float
    nodes: tuple[NodeFigures, ...]
    engines: tuple[tuple[str, EngineStats], ...]
    docs: tuple[tuple[str, str], ...]
    """Node and address of its REST documentation."""


class Display(Protocol):
    """Where a run shows itself; a context manager."""

    def say(self, text: str) -> None:
        """One line that stays."""
        ...

    def show(self, view: RunView) -> None:
        """The state now; replaces the one before."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


@contextmanager
def writing() -> Iterator[None]:
    """Around everything that writes for the person in front.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise OutputError(reason=error.strerror or str(error)) from error


def open_display(stream: TextIO) -> Display:
    """A live table if ``stream`` is a terminal that can move its cursor, else plain lines."""
    console = Console(file=stream)
    live = stream.isatty() and not console.is_dumb_terminal
    return LiveDisplay(console) if live else PlainDisplay(stream)


class LiveDisplay:
    """Table at the bottom of the terminal, lines above it."""

    def __init__(self, console: Console) -> None:
        """Draw on ``console``."""
        self._live = Live(console=console, auto_refresh=False)

    def say(self, text: str) -> None:
        """One line above the table."""
        with writing():
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, view: RunView) -> None:
        """Draw the table anew."""
        with writing():
            self._live.update(picture(view), refresh=True)

    def __enter__(self) -> Self:
        with writing():
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with writing():
            self._live.stop()


class PlainDisplay:
    """Lines for logs and pipes."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        """Write to ``stream``."""
        self._stream = stream
        self._shown = -_PLAIN_SECONDS
        self._docs: tuple[tuple[str, str], ...] = ()

    def say(self, text: str) -> None:
        """One line."""
        with writing():
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def show(self, view: RunView) -> None:
        """A line per node and tier and per engine, every few seconds; addresses when they change."""
        if view.docs != self._docs:
            self._docs = view.docs
            for line in _addresses(view):
                self.say(line)
        if time.monotonic() - self._shown >= _PLAIN_SECONDS:
            self._shown = time.monotonic()
            for line in plain_lines(view):
                self.say(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to undo."""


def picture(view: RunView) -> Group:
    """What a terminal shows: nodes and tiers, engines, addresses."""
    return Group(_tier_table(view), _engine_table(view), *_addresses(view))


def plain_lines(view: RunView) -> Iterable[str]:
    """The same as lines, in columns."""
    time_label = f"[{view.seconds:4.0f} s]"
    for node in view.nodes:
        if not node.running:
            yield f"{time_label} node {node.node} killed"
            continue
        for tier in node.tiers:
            yield (
                f"{time_label} node {node.node} {tier.tier.name} {_blocks(tier):>7} blocks {tier.hits:7,} hits, "
                f"in {readable_bytes(tier.bytes_in):>8}, out {readable_bytes(tier.bytes_out):>8}, "
                f"checksum failures {tier.checksum_failures}"
            )
    for name, stats in view.engines:
        yield (
            f"{time_label} {name} {stats.requests:6,} requests, computed {stats.computed:6,} blocks, "
            f"verified G2 {stats.verified.G2:,}, G3 {stats.verified.G3:,}, G4 {stats.verified.G4:,}, "
            f"wrong bytes {stats.wrong_bytes:,}"
        )


def readable_bytes(count: int) -> str:
    """A byte count with a unit and at most four digits."""
    value = float(count)
    for unit in _UNITS:
        if value < 1_024 or unit == _UNITS[-1]:
            break
        value /= 1_024
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"


def _tier_table(view: RunView) -> Table:
    drawn = Table(title=f"blockyard after {view.seconds:.0f} s, totals since the start", title_justify="left")
    _add_columns(drawn, ("node", "tier"), ("blocks", "hits", "bytes in", "bytes out", "checksum failures"))
    for node in view.nodes:
        labels = (node.node if node.running else f"{node.node} (killed)", node.mover)
        for index, tier in enumerate(node.tiers):
            drawn.add_row(
                labels[index] if index < len(labels) else "",
                tier.tier.name,
                _blocks(tier),
                f"{tier.hits:,}",
                readable_bytes(tier.bytes_in),
                readable_bytes(tier.bytes_out),
                f"{tier.checksum_failures:,}",
                end_section=index == len(node.tiers) - 1,
            )
    return drawn


def _engine_table(view: RunView) -> Table:
    drawn = Table()
    verified = tuple(f"verified {tier}" for tier in ("G2", "G3", "G4"))
    _add_columns(drawn, ("engine",), ("requests", "computed", *verified, "wrong bytes"))
    for name, stats in view.engines:
        figures = (stats.requests, stats.computed, *(getattr(stats.verified, tier) for tier in ("G2", "G3", "G4")))
        drawn.add_row(name, *(f"{figure:,}" for figure in (*figures, stats.wrong_bytes)))
    return drawn


def _add_columns(drawn: Table, words: tuple[str, ...], figures: tuple[str, ...]) -> None:
    for name in words:
        drawn.add_column(name, no_wrap=True)
    for name in figures:
        drawn.add_column(name, justify="right")


def _addresses(view: RunView) -> list[str]:
    return [f"REST docs of {node}: {address}" for node, address in view.docs]


def _blocks(figures: TierFigures) -> str:
    """G4 belongs to all nodes: no node counts its blocks."""
    return "shared" if figures.tier is Tier.G4 else f"{figures.blocks:,}"
