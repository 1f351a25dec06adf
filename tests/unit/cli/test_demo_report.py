"""The report is ok only when every expectation holds, and names each one that does not."""

import json

import pytest

from blockyard.cli.demo_report import DemoReport, PhaseResult
from blockyard.cli.engine_events import BlockReport, TierCounts

PHASES = ("compute", "reuse", "share", "kill", "restart", "damage-g3", "damage-g4", "count")


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
        phases=[PhaseResult(name, 1.0) for name in PHASES],
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
        ("unplanned_restarts", ["remote-tier of a"], "remote-tier of a ended by itself"),
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


def test_early_end_is_one_failure_and_what_it_kept_from_being_tried_is_no_failure() -> None:
    report = DemoReport(min_verified_blocks=10, ready=True, stopped_by="nats ended", g4_cross_node_hits=5)
    report.phases = [PhaseResult("share", 1.0), PhaseResult("kill", 0.5, finished=False)]
    assert report.failures() == ["the run ended early: nats ended"]
    assert len(report.not_reached()) == 7
    text = report.to_text()
    assert text.count("FAILED") == 1
    assert "not reached: B serves A's blocks after A was killed, " in text
    assert json.loads(report.to_json())["not_reached"] == report.not_reached()


def test_early_end_does_not_hide_what_was_found_before() -> None:
    report = DemoReport(min_verified_blocks=10, ready=True, stopped_by="nats ended", wrong_bytes=3)
    report.phases = [PhaseResult("share", 1.0)]
    assert [failure.split(":")[0] for failure in report.failures()] == [
        "the run ended early",
        "an engine was given 3 wrong bytes; expected none",
        "B found none of A's blocks in G4",
    ]


def test_summary_of_a_run_that_never_started_shows_no_zeros() -> None:
    text = DemoReport(min_verified_blocks=10, stopped_by="not everything had started after 1 s").to_text()
    assert "FAILED: the run ended early: not everything had started after 1 s" in text
    assert "verified  " not in text


def test_run_without_its_phases_is_not_ok() -> None:
    assert DemoReport(min_verified_blocks=0, ready=True).failures() == ["the run did not reach its end"]
