"""Rules that no linter of the project checks: file length, banned calls, what an engine may import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path for root in ("shared", "services", "tests", "bench", "deploy") for path in (ROOT / root).rglob("*.py")
)
MAX_LINES = 400
BANNED_MODULES = {"pickle", "dill", "marshal", "shelve", "cloudpickle"}
BANNED_CALLS = {"__import__", "eval", "exec", "torch.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}
ENGINE_PACKAGES = ("blockyard.core", "blockyard.wire", "blockyard.runtime.rpc", "blockyard.connectors")
ENGINE_THIRD_PARTY = {"msgspec", "numpy", "xxhash"}


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _banned(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in BANNED_MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name for name in names if name in BANNED_CALLS or name.split(".")[0] in BANNED_MODULES]
        elif isinstance(node, ast.Call) and _dotted(node.func) in BANNED_CALLS:
            found.append(_dotted(node.func))
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from marshal import loads",
        "yaml.load(x)",
        "torch.load(x)",
        "__import__('os')",
        "import shelve as s",
    ],
)
def test_a_planted_banned_call_is_found(source: str) -> None:
    assert _banned(source)


def test_no_banned_call_anywhere() -> None:
    found = {str(path.relative_to(ROOT)): names for path in SOURCES if (names := _banned(path.read_text()))}
    assert found == {}


def test_files_stay_short() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_every_package_has_a_docstring() -> None:
    missing = [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.parts[len(ROOT.parts)] in ("shared", "services")
        and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert missing == []


def test_engine_code_imports_with_three_packages_only() -> None:
    """In a process where every other third-party import is refused, all engine modules still import."""
    modules = [
        ".".join(path.relative_to(ROOT / "shared").with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCES
        if path.is_relative_to(ROOT / "shared") and path.name != "__main__.py"
    ]
    wanted = [name for name in modules if name.startswith(ENGINE_PACKAGES)]
    program = f"""
import importlib, importlib.abc, sys
allowed = sys.stdlib_module_names | {ENGINE_THIRD_PARTY!r} | {{"blockyard"}}
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] not in allowed:
            raise ImportError("an engine has no " + name)
sys.meta_path.insert(0, Refuse())
for name in {wanted!r}:
    importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(wanted) > 20
