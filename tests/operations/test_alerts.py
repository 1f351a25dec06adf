"""Alerts ask only for what exists, fire when they must and not otherwise, and each has a runbook."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.operations.alert_cases import CASES, AlertCase
from tests.operations.promql import mistakes

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "charts" / "blockyard" / "alerts"
RULES: Final = FOLDER / "blockyard.yaml"
RUNBOOK: Final = ROOT / "docs" / "how-to" / "observe.md"


def read_alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


ALERTS: Final = {rule["alert"]: rule for rule in read_alerts()}


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed")
    return found


def test_every_file_beside_the_rules_is_one_that_prometheus_may_read() -> None:
    assert [path.name for path in FOLDER.iterdir()] == [RULES.name]


def test_every_rule_is_an_alert_with_a_name_of_its_own() -> None:
    assert len(ALERTS) == len(read_alerts())
    assert [name for name in ALERTS if not re.fullmatch(r"Blockyard[A-Z]\w+", name)] == []


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_asks_for_what_exists(name: str) -> None:
    assert mistakes(ALERTS[name]["expr"]) == []


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_bad_it_is_what_it_is_and_where_to_read_on(name: str) -> None:
    rule = ALERTS[name]
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert all(text.strip() for text in rule["annotations"].values())
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert ROOT / page == RUNBOOK
    assert anchor == name.lower()


def test_every_alert_has_a_heading_in_the_runbook_and_no_heading_is_left_over() -> None:
    headings = re.findall(r"^### (Blockyard\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_texts_name_only_labels_that_the_alert_has(name: str) -> None:
    rule = ALERTS[name]
    used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    grouped = re.findall(r"^\s*(?:sum|changes\(\(max) by \(([^)]*)\)", rule["expr"])
    if grouped:
        assert used <= {label.strip() for label in grouped[0].split(",")}


# --- with Prometheus' own tool ----------------------------------------------------------------------------------------
def test_prometheus_accepts_the_rules(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert sorted(case.alert for case in CASES) == sorted(ALERTS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_a_case_is_made_of_samples_that_exist(case: AlertCase) -> None:
    assert [wrong for name, _ in (*case.fires, *case.quiet) for wrong in mistakes(name)] == []


def rule_test(case: AlertCase, series: tuple[tuple[str, str], ...], minutes: int) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "alert_rule_test": [{"eval_time": f"{minutes}m", "alertname": case.alert, "exp_alerts": []}],
    }


def run_promtool(promtool: str, folder: Path, tests: list[dict[str, Any]]) -> str:
    """What the tool says about alerts that were not expected; empty where there is none."""
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert ("SUCCESS" in done.stdout) is (done.returncode == 0)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_when_it_must(case: AlertCase, promtool: str, tmp_path: Path) -> None:
    # No alert is expected, so the tool complains about the one that fires, and shows its labels.
    said = run_promtool(promtool, tmp_path, [rule_test(case, case.fires, case.minutes)])
    assert f'alertname="{case.alert}"' in said.replace("\\", "")
    for label, value in case.labels:
        assert f'{label}="{value}"' in said.replace("\\", "")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_is_quiet_otherwise(case: AlertCase, promtool: str, tmp_path: Path) -> None:
    tests = [rule_test(case, case.quiet, minutes) for minutes in range(2, case.minutes + 1, 3)]
    assert run_promtool(promtool, tmp_path, tests) == ""


@pytest.mark.parametrize("case", [case for case in CASES if case.by_node], ids=lambda case: case.alert)
def test_nodes_of_one_name_in_two_namespaces_are_two(case: AlertCase, promtool: str, tmp_path: Path) -> None:
    # Also targets may have one name, where a scrape configuration calls them like their pods.
    series = tuple(
        (name.replace("{", f'{{namespace="{namespace}", ', 1), values)
        for namespace, courses in (("sick", case.fires), ("well", case.quiet))
        for name, values in courses
    )
    said = run_promtool(promtool, tmp_path, [rule_test(case, series, case.minutes)]).replace("\\", "")
    assert f'alertname="{case.alert}"' in said
    assert 'namespace="sick"' in said
    assert 'namespace="well"' not in said
