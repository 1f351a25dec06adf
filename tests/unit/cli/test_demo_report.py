"""The report is ok only when every expectation holds, and names each one that does not."""

import json

import pytest

from blockyard.cli.demo_report import DemoReport
from blockyard.cli.engine_events import BlockReport, TierCounts


def good() -> DemoReport:
    return DemoReport(
        min_verified_blocks=10,
        ready=True,
        verified=TierCounts(10, 10, 10),
        g4_cross_node_hits=5,
        after_kill_hits=5,
        warm_restart_g3_blocks=5,
        checksum_failures=2,
        g3_damage=BlockReport(key="00", status="OK", source="G4"),
        g4_damage=BlockReport(key="01", status="CORRUPT"),
    )


def test_good_run_is_ok() -> None:
    summary = json.loads(good().to_json())
    assert summary["ok"] is True
    assert summary["failures"] == []
    assert summary["verified_blocks"] == {"G2": 10, "G3": 10, "G4": 10}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("wrong_bytes", 1, "1 wrong bytes"),
        ("verified", TierCounts(10, 9, 10), "9 blocks verified from G3"),
        ("g4_cross_node_hits", 0, "none of A's blocks in G4"),
        ("after_kill_hits", 0, "after A was killed"),
        ("warm_restart_g3_blocks", 0, "cold"),
        ("checksum_failures", 1, "1 checksum failures counted"),
        ("checksum_failures", 3, "3 checksum failures counted"),
        ("g3_damage", None, "no byte was flipped in G3"),
        ("g3_damage", BlockReport(key="00", status="OK", source="G3", wrong_bytes=1), "flipped in G3 reached"),
        ("g4_damage", BlockReport(key="01", status="OK", source="G4"), "damaged in G4 was served from there"),
        ("stopped_by", "engine-b ended", "ended early: engine-b ended"),
    ],
)
def test_each_broken_expectation_is_named(name: str, value: object, words: str) -> None:
    report = good()
    setattr(report, name, value)
    failures = report.failures()
    assert len(failures) == 1
    assert words in failures[0]
    assert json.loads(report.to_json())["ok"] is False
