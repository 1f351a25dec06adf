"""The page on failures: every case has a test that exists, and what it tells people to look for is in the sources."""

import ast
import re
from functools import cache
from itertools import pairwise
from typing import Final

import pytest
from tests.architecture.doc_tables import DOCS, ROOT

PAGE: Final = (DOCS / "reference" / "failures.md").read_text()
_ROWS: Final = ("works", "seen", "to do", "shown by")
_TEST: Final = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def cases() -> dict[str, dict[str, str]]:
    """Rows of the table of every failure."""
    starts = [found.start() for found in re.finditer(r"^##+ ", PAGE, re.MULTILINE)]
    sections = [PAGE[start:end] for start, end in pairwise([*starts, len(PAGE)])]
    return {
        section.partition("\n")[0].removeprefix("### "): dict(re.findall(r"^\| ([\w ]+) \| (.+) \|$", section, re.M))
        for section in sections
        if section.startswith("### ")
    }


@cache
def sources() -> str:
    """All production code."""
    return "\n".join(path.read_text() for root in ("shared", "services") for path in (ROOT / root).rglob("*.py"))


CASES: Final = cases()


@pytest.mark.parametrize("case", CASES)
def test_every_case_says_what_works_where_it_is_seen_what_to_do_and_what_shows_it(case: str) -> None:
    assert [row for row in _ROWS if not CASES[case].get(row)] == []
    assert _TEST.search(CASES[case]["shown by"])


def test_the_tests_named_exist() -> None:
    named = sorted(set(_TEST.findall(PAGE)))
    assert len(named) > 60
    functions = {
        path: {
            node.name
            for node in ast.walk(ast.parse((ROOT / path).read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for path in {path for path, _ in named}
        if (ROOT / path).exists()
    }
    assert [f"{path}::{test}" for path, test in named if test not in functions.get(path, ())] == []
    assert PAGE.count("::") == len(_TEST.findall(PAGE)), "not in the form of a test"


def test_the_checks_named_exist() -> None:
    named = set(re.findall(r"\bcheck `([^`]+)`", PAGE))
    table = (DOCS / "reference" / "api.md").read_text()
    assert named == {check for check in named if f"| `{check}` |" in table} != set()
    assert [check for check in named if f'"{check}"' not in sources()] == []


def test_the_lines_of_logs_exist() -> None:
    named = set(re.findall(r"\blog `([^`]+)`", PAGE))
    assert [line for line in named if f'"{line}"' not in sources()] == []
    assert len(named) > 8
