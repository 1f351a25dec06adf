"""Draws a dashboard: headings and panels in their grid, each with what its queries answered.

Invariants: sizes are in pixels from the upper left corner, as in a browser; nothing is drawn outside its panel.
Threading: one thread; the library keeps global state.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("agg")

from deploy.dashboards.panels import Kind, Unit
from deploy.dashboards.pictures.frames import Frame, Line, Window
from deploy.dashboards.pictures.units import text_of
from deploy.dashboards.reading import Look, Place, ReadBoard, ReadPanel
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image

WIDTH: Final = 1_680
_COLORS: Final = 256
_COLUMN: Final = WIDTH / 24
_ROW: Final = 36
_GAP: Final = 8
_HEAD: Final = 46
_FOOT: Final = 28
_DPI: Final = 100
_POINT: Final = 72 / _DPI
_PAPER: Final = "#f4f5f5"
_PANEL: Final = "#ffffff"
_EDGE: Final = "#dcdfe3"
_INK: Final = "#24292e"
_FAINT: Final = "#6b7280"
_GRID: Final = "#eceef0"
_NAMED: Final = {
    "green": "#56a64b",
    "yellow": "#e0b400",
    "orange": "#ff780a",
    "red": "#e02f44",
    "blue": "#3274d9",
    "purple": "#a352cc",
}
_CYCLE: Final = (
    *("#56a64b", "#e0b400", "#3274d9", "#ff780a", "#e02f44", "#a352cc", "#37a2a2", "#8f3bb8", "#b5651d", "#5794f2"),
    *("#96d98d", "#ffb357", "#c4162a", "#6ed0e0", "#705da0", "#508642"),
)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Lower edge."""
        return self.top + self.height

    def inner(self, left: float, top: float, right: float, bottom: float) -> "Box":
        """This one without margins."""
        return Box(self.left + left, self.top + top, self.width - left - right, self.height - top - bottom)


def draw(board: ReadBoard, frames: Sequence[Frame], window: Window, path: Path, note: str) -> None:
    """Write the picture of a dashboard whose panels answered ``frames``, with ``note`` below."""
    places = [panel.place for panel in board.panels] + [place for _, place in board.headings]
    rows = max(place.top + place.height for place in places)
    canvas = Canvas(_HEAD + rows * _ROW + _FOOT)
    canvas.text(_GAP + 4, _HEAD / 2, board.title, size=17, weight="bold")
    shown = f"{_clock(window.start)} to {_clock(window.end)} UTC    Namespace: All    Node: All"
    canvas.text(WIDTH - _GAP - 4, _HEAD / 2, shown, size=12, color=_FAINT, align="right")
    for title, place in board.headings:
        canvas.text(_GAP + 4, _HEAD + (place.top + 0.55) * _ROW, title, size=14, weight="bold")
    for panel, frame in zip(board.panels, frames, strict=True):
        _panel(canvas, panel, frame, window)
    canvas.text(_GAP + 4, canvas.height - _FOOT / 2, note, size=11, color=_FAINT)
    canvas.save(path)


class Canvas:
    """The sheet, with its origin in the upper left corner."""

    def __init__(self, height: float) -> None:
        """Start empty."""
        self.height = height
        self._figure = Figure(figsize=(WIDTH / _DPI, height / _DPI), dpi=_DPI, facecolor=_PAPER)
        self._canvas: Any = FigureCanvasAgg(self._figure)

    def text(
        self,
        left: float,
        middle: float,
        text: str,
        *,
        size: float,
        color: str = _INK,
        weight: str = "normal",
        align: str = "left",
    ) -> float:
        """Write at a place; answers how wide it became."""
        # A dollar sign is no formula.
        item = self._figure.text(
            left / WIDTH,
            1 - middle / self.height,
            text.replace("$", r"\$"),
            fontsize=size * _POINT,
            color=color,
            weight=weight,
            ha=align,
            va="center_baseline",
            family="DejaVu Sans",
        )
        return float(item.get_window_extent().width)

    def width_of(self, text: str, size: float) -> float:
        """How wide a text would become."""
        item = self._figure.text(0, 0, text.replace("$", r"\$"), fontsize=size * _POINT, family="DejaVu Sans")
        width = float(item.get_window_extent().width)
        item.remove()
        return width

    def box(self, box: Box, *, fill: str, edge: str | None = None, rounding: float = 3) -> None:
        """A filled rectangle, below all curves."""
        shape = FancyBboxPatch(
            (box.left / WIDTH, 1 - box.bottom / self.height),
            box.width / WIDTH,
            box.height / self.height,
            boxstyle=f"round,pad=0,rounding_size={rounding / WIDTH}",
            mutation_aspect=WIDTH / self.height,
            facecolor=fill,
            edgecolor=edge or fill,
            linewidth=0.8 if edge else 0,
            zorder=-1,
            transform=self._figure.transFigure,
        )
        self._figure.add_artist(shape)

    def axes(self, box: Box) -> Any:
        """A place for curves."""
        axes = self._figure.add_axes(
            (box.left / WIDTH, 1 - box.bottom / self.height, box.width / WIDTH, box.height / self.height)
        )
        axes.set_facecolor("none")
        return axes

    def save(self, path: Path) -> None:
        """Write the file, in few colors: it is a quarter as large."""
        self._canvas.draw()
        picture = Image.frombuffer(
            "RGBA", self._canvas.get_width_height(), self._canvas.buffer_rgba(), "raw", "RGBA", 0, 1
        )
        picture.convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


def color_of(name: str) -> str:
    """Color for a name of Grafana, or as it is."""
    return _NAMED.get(name, name)


def _panel(canvas: Canvas, panel: ReadPanel, frame: Frame, window: Window) -> None:
    box = _box_of(panel.place)
    canvas.box(box, fill=_PANEL, edge=_EDGE)
    canvas.text(box.left + 10, box.top + 16, panel.title, size=13, weight="bold")
    content = box.inner(10, 30, 10, 8)
    if frame.empty:
        canvas.text(
            box.left + box.width / 2, box.top + box.height / 2, "No data", size=13, color=_FAINT, align="center"
        )
        return
    match panel.kind:
        case Kind.TIMESERIES:
            _curves(canvas, panel, frame.lines, content, window)
        case Kind.STAT:
            _numbers(canvas, panel, frame.lines, content, window)
        case Kind.BARGAUGE:
            _bars(canvas, panel, frame.lines, content)
        case Kind.TABLE:
            _rows(canvas, panel, frame, content, window)


def _box_of(place: Place) -> Box:
    return Box(
        place.left * _COLUMN + _GAP / 2,
        _HEAD + place.top * _ROW + _GAP / 2,
        place.width * _COLUMN - _GAP,
        place.height * _ROW - _GAP,
    )


# --- curves -----------------------------------------------------------------------------------------------------------
def _curves(canvas: Canvas, panel: ReadPanel, lines: Sequence[Line], box: Box, window: Window) -> None:
    colors = _series_colors(panel, lines)
    used = _legend(canvas, lines, colors, box)
    ticks = _ticks(panel, _highest(panel, lines))
    margin = max(canvas.width_of(text_of(tick, panel.look.unit), 11) for tick in ticks) + 10
    axes = canvas.axes(box.inner(margin, 4, 6, used + 18))
    if panel.stacked:
        _stack(axes, lines, colors)
    else:
        for line, color in zip(lines, colors, strict=True):
            for times, values in _unbroken(line, window):
                axes.plot(times, values, color=color, linewidth=1.2, solid_capstyle="round")
                axes.fill_between(times, values, color=color, alpha=0.07, linewidth=0)
    axes.set_ylim(0, ticks[-1] * 1.02)
    axes.set_xlim(window.start, window.end)
    _scales(axes, panel, ticks, window)


def _highest(panel: ReadPanel, lines: Sequence[Line]) -> float:
    if panel.maximum is not None:
        return panel.maximum
    if not panel.stacked:
        return max(max(line.values) for line in lines)
    sums: Counter[float] = Counter()
    for line in lines:
        sums.update(dict(zip(line.times, line.values, strict=True)))
    return max(sums.values())


def _ticks(panel: ReadPanel, highest: float) -> list[float]:
    """Marks of the scale from 0 to above everything, at steps that are round in the unit."""
    if panel.maximum is not None:
        return [panel.maximum * part / 4 for part in range(5)]
    if highest <= 0:
        return [0.0, 1.0]
    base = 2.0 if panel.look.unit is Unit.BYTES else 60.0 if panel.look.unit is Unit.SECONDS and highest > 60 else 10.0
    steps = {2.0: (1.0,), 60.0: (1.0, 2.0, 5.0, 10.0, 30.0), 10.0: (1.0, 2.0, 5.0)}[base]
    scale = base ** (math.floor(math.log(highest, base)) - 2)
    while True:
        for step in steps:
            if highest <= 5 * step * scale:
                count = math.ceil(highest / (step * scale) * 1.001)
                return [index * step * scale for index in range(count + 1)]
        scale *= base


def _stack(axes: Any, lines: Sequence[Line], colors: Sequence[str]) -> None:
    times = sorted({time for line in lines for time in line.times})
    below = [0.0] * len(times)
    for line, color in zip(lines, colors, strict=True):
        known = dict(zip(line.times, line.values, strict=True))
        above = [low + known.get(time, 0.0) for low, time in zip(below, times, strict=True)]
        axes.fill_between(times, below, above, color=color, alpha=0.6, linewidth=0)
        axes.plot(times, above, color=color, linewidth=0.9)
        below = above


def _unbroken(line: Line, window: Window) -> list[tuple[list[float], list[float]]]:
    """Pieces of a curve without the times at which there was nothing."""
    pieces: list[tuple[list[float], list[float]]] = []
    for time, value in zip(line.times, line.values, strict=True):
        if not pieces or time - pieces[-1][0][-1] > 2.5 * window.step_seconds:
            pieces.append(([], []))
        pieces[-1][0].append(time)
        pieces[-1][1].append(value)
    return pieces


def _scales(axes: Any, panel: ReadPanel, ticks: Sequence[float], window: Window) -> None:
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.grid(True, color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=11 * _POINT, labelcolor=_FAINT, pad=4)
    axes.set_yticks(ticks, [text_of(tick, panel.look.unit) for tick in ticks])
    count = 6 if panel.place.width > 8 else 4
    times = [window.start + (window.end - window.start) * (index + 0.5) / count for index in range(count)]
    axes.set_xticks(times, [_clock(time) for time in times])


def _legend(canvas: Canvas, lines: Sequence[Line], colors: Sequence[str], box: Box) -> float:
    """Names below the curves, in as many lines as they need; answers the height."""
    size, pitch, swatch, gap = 11, 16, 16, 14
    placed: list[list[tuple[float, str, str]]] = [[]]
    left = 0.0
    for line, color in zip(lines, colors, strict=True):
        width = swatch + canvas.width_of(line.name, size) + gap
        if left + width > box.width and placed[-1]:
            placed.append([])
            left = 0.0
        placed[-1].append((left, line.name, color))
        left += width
    placed = placed[:3]
    height = pitch * len(placed)
    for index, entries in enumerate(placed):
        middle = box.bottom - height + pitch * (index + 0.5)
        for start, name, color in entries:
            canvas.box(Box(box.left + start, middle - 2, 11, 4), fill=color, rounding=1)
            canvas.text(box.left + start + swatch, middle, name, size=size, color=_INK)
    return float(height)


def _series_colors(panel: ReadPanel, lines: Sequence[Line]) -> list[str]:
    fixed = {line.name: color_of(panel.colors[line.name]) for line in lines if line.name in panel.colors}
    free = iter([color for color in _CYCLE if color not in fixed.values()] * 2)
    return [fixed.get(line.name) or next(free) for line in lines]


# --- numbers ----------------------------------------------------------------------------------------------------------
def _numbers(canvas: Canvas, panel: ReadPanel, lines: Sequence[Line], box: Box, window: Window) -> None:
    if panel.graph:
        line = lines[0]
        axes = canvas.axes(Box(box.left - 10, box.bottom - 26, box.width + 20, 34))
        color = _shade(panel.look, line.last)
        axes.fill_between(line.times, line.values, color=color, alpha=0.16, linewidth=0)
        axes.plot(line.times, line.values, color=color, linewidth=1)
        axes.set_xlim(window.start, window.end)
        axes.set_ylim(0, max(1e-9, max(line.values) * 1.05))
        axes.axis("off")
    named = len(lines) > 1
    across = min(len(lines), 3)
    down = -(-len(lines) // across)
    for index, line in enumerate(lines):
        middle = box.left + box.width * (index % across + 0.5) / across
        cell = box.height / down
        height = box.top + cell * (index // across + (0.58 if named else 0.34 if panel.graph else 0.42))
        text, color = _state(panel.look, line.last)
        size = 30 if down == 1 else 22
        canvas.text(middle, height, text, size=size, color=color, weight="bold", align="center")
        if named:
            canvas.text(middle, height - size * 0.95, line.name, size=11, color=_FAINT, align="center")


def _bars(canvas: Canvas, panel: ReadPanel, lines: Sequence[Line], box: Box) -> None:
    name_width = max(canvas.width_of(line.name, 12) for line in lines) + 10
    pitch = min(box.height / len(lines), 60)
    whole = panel.maximum or max(line.last for line in lines) or 1
    for index, line in enumerate(lines):
        top = box.top + index * pitch
        text, color = _state(panel.look, line.last)
        track = Box(box.left + name_width, top + pitch * 0.2, box.width - name_width - 66, pitch * 0.6)
        canvas.text(box.left, top + pitch / 2, line.name, size=12)
        canvas.box(track, fill=_GRID)
        if line.last > 0:
            filled = Box(track.left, track.top, track.width * min(1.0, line.last / whole), track.height)
            canvas.box(filled, fill=color)
        canvas.text(box.right, top + pitch / 2, text, size=13, color=color, weight="bold", align="right")


def _rows(canvas: Canvas, panel: ReadPanel, frame: Frame, box: Box, window: Window) -> None:
    titles = frame.titles(panel)
    width, pitch = box.width / len(titles), 28
    for column, title in enumerate(titles):
        canvas.text(box.left + column * width + 4, box.top + pitch / 2, title, size=12, weight="bold", color=_FAINT)
    for index, row in enumerate(frame.rows):
        top = box.top + pitch * (index + 1)
        if top + pitch > box.bottom + 4:
            break
        canvas.box(Box(box.left, top, box.width, 1), fill=_EDGE, rounding=0)
        for column, title in enumerate(titles):
            value = row.get(title, "")
            look = panel.looks.get(title, panel.look)
            text, color = (value, _INK) if isinstance(value, str) else _state(look, value, window.end, plain=_INK)
            canvas.text(box.left + column * width + 4, top + pitch / 2, text, size=12, color=color)


def _state(look: Look, value: float, now: float = 0.0, plain: str | None = None) -> tuple[str, str]:
    """Text and color of a value."""
    if look.texts and value in look.texts:
        text, color = look.texts[value]
        return text, color_of(color)
    return text_of(value, look.unit, now), plain or _shade(look, value)


def _shade(look: Look, value: float) -> str:
    reached = [color for limit, color in look.thresholds if value >= limit]
    return color_of(reached[-1]) if reached else _INK


def _clock(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M:%S")
