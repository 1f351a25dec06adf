"""The table shows every node and tier; without a terminal there are plain lines, not too many."""

import io

from rich.console import Console

from blockyard.cli.display import LiveDisplay, PlainDisplay, RunView, open_display, readable_bytes
from blockyard.cli.engine_events import EngineStats, TierCounts
from blockyard.cli.node_metrics import NodeFigures, TierFigures
from blockyard.core.vocabulary import Tier


def view() -> RunView:
    tiers = (
        TierFigures(Tier.G2, blocks=1234, hits=5, bytes_in=3 << 20, bytes_out=0, checksum_failures=0),
        TierFigures(Tier.G3, blocks=7, hits=0, bytes_in=0, bytes_out=0, checksum_failures=9),
    )
    nodes = (
        NodeFigures("a", running=False, tiers=tiers, mover="nixl", unsettled_jobs=0, sessions=1),
        NodeFigures("b", running=True, tiers=tiers, mover="plain", unsettled_jobs=0, sessions=1),
    )
    engine = EngineStats(requests=3, computed=40, verified=TierCounts(1, 2, 3))
    return RunView(12.0, nodes, (("engine-a", engine),), ("http://127.0.0.1:1/docs",))


def test_live_table_has_a_row_per_node_and_tier() -> None:
    stream = io.StringIO()
    with LiveDisplay(Console(file=stream, force_terminal=True, width=120)) as display:
        display.say("[not markup]")
        display.show(view())
    text = stream.getvalue()
    for words in ("a (killed)", "b (plain)", "G2", "G3", "1,234", "3.0 MiB", "[not markup]", "http://127.0.0.1:1/docs"):
        assert words in text
    assert "40 blocks computed" in text


def test_plain_lines_come_every_few_seconds_only() -> None:
    stream = io.StringIO()
    display = open_display(stream)
    assert isinstance(display, PlainDisplay)
    with display:
        display.show(view())
        display.show(view())
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "a (killed): G2 1,234 blocks, 5 hits, in 3.0 MiB" in lines[0]


def test_bytes_are_readable() -> None:
    assert [readable_bytes(count) for count in (0, 1023, 1536, 150 << 20, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "150 MiB",
        "5.0 GiB",
    ]
