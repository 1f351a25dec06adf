"""Every package that a user installs is used by some code that ships."""

import ast
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHIPPED = ("services", "cli", "embedded", "nixl")
NAMES = [
    re.split(r"[\[<>=~!; ]", requirement)[0]
    for requirement in (
        *PROJECT["dependencies"],
        *(item for extra in SHIPPED for item in PROJECT["optional-dependencies"][extra]),
    )
]


def _used() -> set[str]:
    """Modules that are imported, and names of wheels whose programs are run."""
    found: set[str] = set()
    for root in ("shared", "services"):
        for path in (ROOT / root).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found.update(alias.name.split(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    found.add(node.module.split(".")[0])
                elif isinstance(node, ast.Call) and ast.unparse(node.func) == "wheel_program":
                    found.add(ast.literal_eval(node.args[0]))
    return found


@pytest.fixture(scope="module")
def used() -> set[str]:
    return _used()


@pytest.mark.parametrize("name", NAMES)
def test_a_package_that_is_asked_for_is_used(name: str, used: set[str]) -> None:
    modules = {
        module
        for module, distributions in importlib.metadata.packages_distributions().items()
        if name in {distribution.lower().replace("_", "-") for distribution in distributions}
    }
    assert used & {name, *modules}
