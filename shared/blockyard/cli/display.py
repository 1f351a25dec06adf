"""What the person in front sees: one live table on a terminal, a line every few seconds elsewhere.

Threading: one event loop; the live table is drawn by the loop, not by a thread of its own.
"""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

from blockyard.cli.engine_events import EngineStats
from blockyard.cli.node_metrics import NodeFigures, TierFigures
from blockyard.core.vocabulary import Tier

_PLAIN_SECONDS: Final = 5.0
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class RunView:
    """State of a run at one moment."""

    seconds: float
    nodes: tuple[NodeFigures, ...]
    engines: tuple[tuple[str, EngineStats], ...]
    docs: tuple[str, ...]


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


def open_display(stream: TextIO) -> Display:
    """A live table if ``stream`` is a terminal, else plain lines."""
    return LiveDisplay(Console(file=stream)) if stream.isatty() else PlainDisplay(stream)


class LiveDisplay:
    """Table at the bottom of the terminal, lines above it."""

    def __init__(self, console: Console) -> None:
        """Draw on ``console``."""
        self._live = Live(console=console, auto_refresh=False)

    def say(self, text: str) -> None:
        """One line above the table."""
        self._live.console.print(text, markup=False, highlight=False)

    def show(self, view: RunView) -> None:
        """Draw the table anew."""
        self._live.update(table(view), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()


class PlainDisplay:
    """Lines for logs and pipes."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        """Write to ``stream``."""
        self._stream = stream
        self._shown = -_PLAIN_SECONDS

    def say(self, text: str) -> None:
        """One line."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def show(self, view: RunView) -> None:
        """One line per node, every few seconds."""
        if time.monotonic() - self._shown >= _PLAIN_SECONDS:
            self._shown = time.monotonic()
            for line in plain_lines(view):
                self.say(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing to undo."""


def table(view: RunView) -> Table:
    """The live table: one row per node and tier."""
    drawn = Table(title=f"blockyard, {view.seconds:.0f} s", caption="\n".join(_captions(view)), caption_justify="left")
    for name in ("node", "tier", "blocks", "hits", "bytes in", "bytes out", "checksum failures"):
        drawn.add_column(name, justify="left" if name in ("node", "tier") else "right")
    for node in view.nodes:
        for index, tier in enumerate(node.tiers):
            drawn.add_row(
                _node_label(node) if not index else "",
                tier.tier.name,
                _blocks(tier),
                f"{tier.hits:,}",
                readable_bytes(tier.bytes_in),
                readable_bytes(tier.bytes_out),
                f"{tier.checksum_failures}",
                end_section=index == len(node.tiers) - 1,
            )
    return drawn


def plain_lines(view: RunView) -> Iterable[str]:
    """The same as lines."""
    for node in view.nodes:
        tiers = " | ".join(
            f"{tier.tier.name} {_blocks(tier)} blocks, {tier.hits:,} hits, in {readable_bytes(tier.bytes_in)}, "
            f"out {readable_bytes(tier.bytes_out)}, checksum failures {tier.checksum_failures}"
            for tier in node.tiers
        )
        yield f"[{view.seconds:5.0f} s] {_node_label(node)}: {tiers}"


def readable_bytes(count: int) -> str:
    """A byte count with a unit and at most four digits."""
    value = float(count)
    for unit in _UNITS:
        if value < 1_024 or unit == _UNITS[-1]:
            break
        value /= 1_024
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"


def _captions(view: RunView) -> Iterable[str]:
    for name, stats in view.engines:
        verified = ", ".join(f"{tier} {getattr(stats.verified, tier):,}" for tier in ("G2", "G3", "G4"))
        yield (
            f"{name}: {stats.requests:,} requests, {stats.computed:,} blocks computed; "
            f"verified {verified}; wrong bytes {stats.wrong_bytes}"
        )
    for address in view.docs:
        yield f"REST docs: {address}"


def _blocks(figures: TierFigures) -> str:
    """G4 belongs to all nodes: no node counts its blocks."""
    return "shared" if figures.tier is Tier.G4 else f"{figures.blocks:,}"


def _node_label(node: NodeFigures) -> str:
    return f"{node.node} ({node.mover or 'no mover yet'})" if node.running else f"{node.node} (killed)"
