"""The proof run as a user starts it, and with its safety taken away."""

import json
from typing import Any

import pytest

from blockyard.cli.exit_codes import EXIT_START
from blockyard.testing.launcher import Launcher

pytestmark = pytest.mark.timeout(240)


def run_demo(launcher: Launcher, *arguments: str) -> tuple[int, dict[str, Any], str]:
    with launcher.start("demo", "--json", *arguments) as run:
        stdout, stderr = run.communicate()
    return run.returncode, json.loads(stdout), stderr


def test_blocks_travel_survive_and_are_never_wrong(launcher: Launcher) -> None:
    code, summary, log = run_demo(launcher)
    assert (summary["failures"], summary["not_reached"]) == ([], []), log
    assert (code, summary["ok"], summary["wrong_bytes"]) == (0, True, 0)
    assert all(count >= 1_000 for count in summary["verified_blocks"].values())
    assert summary["g4_cross_node_hits"] > 0
    assert summary["after_kill_hits"] > 0
    assert summary["warm_restart_g3_blocks"] > 0
    assert summary["checksum_failures"] == 2
    assert summary["seconds"] < 180
    assert summary["disk_bytes"] < 2 << 30


def test_without_verification_the_engine_is_given_wrong_bytes_and_the_run_says_so(launcher: Launcher) -> None:
    code, summary, _ = run_demo(launcher, "--short", "--unsafe-skip-verification")
    assert code == 1
    assert summary["ok"] is False
    assert summary["wrong_bytes"] > 0
    assert any("wrong bytes" in failure for failure in summary["failures"])


def test_time_limit_ends_the_run_in_order(launcher: Launcher) -> None:
    code, summary, _ = run_demo(launcher, "--short", "--seconds", "1")
    assert code == EXIT_START
    assert summary["failures"] == ["the run ended early: not everything had started after 1 s (--seconds)"]
    assert len(summary["not_reached"]) == 8
