"""The picture shows every node, tier and engine and fits a terminal; elsewhere there are plain lines, not too many."""

import io

import pytest
from rich.console import Console

from blockyard.cli.display import LiveDisplay, PlainDisplay, RunView, open_display, picture, plain_lines, readable_bytes
from blockyard.cli.engine_events import EngineStats, TierCounts
from blockyard.cli.node_metrics import NodeFigures, TierFigures
from blockyard.core.vocabulary import Tier


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def view(figure: int = 1_234) -> RunView:
    tiers = tuple(
        TierFigures(tier, blocks=figure, hits=figure, bytes_in=figure << 20, bytes_out=0, checksum_failures=9)
        for tier in (Tier.G2, Tier.G3, Tier.G4)
    )
    nodes = (
        NodeFigures(
            "a", running=False, tiers=tiers, mover="nixl-posix-uring", unsettled_jobs=0, sessions=1, restarts={}
        ),
        NodeFigures("b", running=True, tiers=tiers, mover="plain", unsettled_jobs=0, sessions=1, restarts={}),
    )
    verified = TierCounts(figure, figure + 1, figure + 2)
    engine = EngineStats(requests=figure, computed=figure, verified=verified, wrong_bytes=3)
    return RunView(12.0, nodes, (("engine-a", engine), ("engine-b", engine)), (("b", "http://127.0.0.1:1/docs"),))


def drawn(shown: RunView, width: int) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    with console.capture() as captured:
        console.print(picture(shown))
    return captured.get()


def test_the_picture_has_a_row_per_node_and_tier_and_engine() -> None:
    text = drawn(view(), 100)
    for words in ("a (killed)", "nixl-posix-uring", "plain", "1,234", "1.2 GiB", "12 s", "REST docs of b: http://127"):
        assert words in text
    rows = [line for line in text.splitlines() if line.startswith("│")]
    assert len(rows) == 2 * 3 + 2
    assert sum("shared" in row for row in rows) == 2
    assert sum("engine-a" in row for row in rows) == 1


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_row_is_wrapped_or_cut_and_all_fit_on_a_small_screen(width: int) -> None:
    text = drawn(view(123_456), width)
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= width
    assert len(lines) <= 23
    assert "…" not in text
    assert len([line for line in lines if line.startswith("│")]) == 2 * 3 + 2


def test_a_terminal_gets_the_picture_below_the_lines() -> None:
    stream = Terminal()
    with LiveDisplay(Console(file=stream, force_terminal=True, width=100)) as display:
        display.say("[not markup]")
        display.show(view())
    assert "[not markup]" in stream.getvalue()
    assert "engine-a" in stream.getvalue()


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_display(Terminal()), PlainDisplay)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_display(Terminal()), LiveDisplay)


def test_plain_lines_come_every_few_seconds_only() -> None:
    stream = io.StringIO()
    display = open_display(stream)
    assert isinstance(display, PlainDisplay)
    with display:
        display.show(view())
        display.show(view())
    lines = stream.getvalue().splitlines()
    assert lines[0] == "REST docs of b: http://127.0.0.1:1/docs"
    assert len(lines) == 1 + 1 + 3 + 2
    assert "node a killed" in lines[1]
    assert "node b G2   1,234 blocks   1,234 hits, in  1.2 GiB" in lines[2]
    assert "engine-a  1,234 requests" in lines[5]


def test_plain_lines_stay_short_with_large_figures() -> None:
    assert max(len(line) for line in plain_lines(view(12_345_678))) < 160


def test_bytes_are_readable() -> None:
    assert [readable_bytes(count) for count in (0, 1023, 1536, 150 << 20, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "150 MiB",
        "5.0 GiB",
    ]
