"""The command of the benchmarks: it lists, runs and refuses; what moved wrong is no figure."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.cases import CASES
from bench.errors import WrongBytesError
from bench.measure import Contest, bounded, skipped

ROOT = Path(__file__).parents[3]


def bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)


def test_every_case_is_listed_with_a_sentence() -> None:
    done = bench("--list")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert [name for name, _ in rows] == list(CASES)
    assert all(sentence.endswith(".") for _, sentence in rows)


def test_a_case_yields_measures_with_their_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERS_PYTHON", "/nowhere/python")
    done = bench("hashing", "--json")
    measures = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (not all(measure["ok"] for measure in measures), "")
    measure = measures[0]
    assert (measure["case"], measure["skipped"], measure["unit"]) == ("hashing", "", "tokens/s")
    assert any("make bench-peers" in measure["skipped"] for measure in measures)
    low, high = measure["spread"]
    assert 0 < low <= measure["value"] <= high
    assert measure["ratio"] > 0
    assert "python" in measure["versions"]


def test_an_unknown_case_is_named_with_the_known_ones() -> None:
    done = bench("hashing", "nonsense")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "unknown case nonsense; known: " in done.stderr


def test_the_help_names_what_installs_the_other_sides() -> None:
    done = bench("--help")
    assert done.returncode == 0
    assert {"make bench-peers", "make engines"} <= {f"make {word}" for word in done.stdout.replace(",", " ").split()}


def test_both_sides_run_in_turns_and_the_ratio_is_ours_to_theirs() -> None:
    order: list[str] = []

    def side(name: str, amount: float) -> float:
        order.append(name)
        return amount

    contest = Contest(
        measure="m", unit="x", ours=lambda: side("a", 2.0), theirs=lambda: side("b", 1.0), against="b", bar=1e9
    )
    measure = contest.run("case", rounds=3)
    assert order == ["a", "b"] * 4
    assert measure.n == 3
    assert measure.ratio is not None
    assert not measure.ok


def test_a_side_that_moved_wrong_ends_the_case() -> None:
    def wrong() -> float:
        raise WrongBytesError("a block differs")

    with pytest.raises(WrongBytesError):
        Contest(measure="m", unit="x", ours=wrong, theirs=lambda: 1.0, against="b").run("case")


def test_a_case_without_its_peer_says_why() -> None:
    measure = skipped("g3", "store", "pwrite", "NIXL is not installed")
    assert (measure.ok, measure.value, measure.skipped) == (True, None, "NIXL is not installed")


def test_a_cost_is_judged_by_its_highest_value() -> None:
    measure = bounded("memory", "row", values=[150.0, 210.0], unit="B", limit=200, wished=160)
    assert (measure.value, measure.spread, measure.ok) == (210.0, (150.0, 210.0), False)
    assert (measure.ratio, measure.bar, measure.stretch) == (200 / 210, 1.0, 1.25)
    assert bounded("memory", "row", values=[200.0], unit="B", limit=200).ok
