"""What the page on docker compose shows besides commands: files and variables that compose takes."""

import re
from pathlib import Path

import pytest
from tests.architecture.doc_commands import Fence, fences
from tests.compose.project import ask, installed, require_memory, resolved
from tests.compose.smoke.compose import COMPOSE_FILE
from tests.compose.smoke.isolation import ROOT

pytestmark = pytest.mark.skipif(not installed(), reason="compose comes with make deploy-tools")
PAGE = ROOT / "docs" / "how-to" / "docker-compose.md"
FILES = [fence for fence in fences(PAGE) if fence.kind == "yaml"]
VARIABLES = [fence for fence in fences(PAGE) if fence.kind == "text" and "COMPOSE_PROFILES" in fence.text]


@pytest.mark.parametrize("fence", FILES, ids=lambda fence: str(fence.line))
def test_a_file_of_the_page_is_an_override_that_compose_takes(fence: Fence, tmp_path: Path) -> None:
    override = tmp_path / "override.yml"
    override.write_text(fence.text)
    changed, plain = resolved(override), resolved()
    assert changed != plain
    assert plain.keys() <= changed.keys()
    assert {name for name in changed.keys() - plain.keys() if not name.startswith("x-")} <= {"secrets"}
    assert changed["services"].keys() == plain["services"].keys()
    assert changed["volumes"].keys() == plain["volumes"].keys()


@pytest.mark.parametrize("fence", VARIABLES, ids=lambda fence: str(fence.line))
def test_variables_of_the_page_change_something(fence: Fence) -> None:
    given = dict(line.split("=", 1) for line in fence.text.split())
    profiles = given.pop("COMPOSE_PROFILES").split(",")
    for name, value in given.items():
        done = ask("--quiet", profiles=profiles, environment={name: value})
        assert done.returncode == 0, done.stderr
        assert resolved(environment={name: value}) != resolved(), name
    require_memory(resolved(environment=given)["services"]["offload-worker-a"])


def test_the_table_names_every_variable() -> None:
    """By the beginning or the end of its name, or as it is."""
    taken = set(re.findall(r"\$\{([A-Z0-9_]+):-(?!default)", COMPOSE_FILE.read_text()))
    named = set(re.findall(r"`([A-Z0-9_]+)`", PAGE.read_text()))
    rest = {name for name in taken - named if not name.startswith(("BLOCKYARD_", "PORT_"))}
    assert {name for name in rest if not name.endswith(("_MEMORY", "_CPUS"))} == set()
