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
ADAPTERS = {"blockyard.connectors.vllm": {"vllm", "torch"}}
"""What the adapter of an engine may import besides: the engine itself, which is not installed here."""


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
    """In a process where every other third-party import is refused, all engine modules still import.

    Those that import the engine itself are looked at instead: it is not installed here.
    """
    modules = [
        ".".join(path.relative_to(ROOT / "shared").with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCES
        if path.is_relative_to(ROOT / "shared") and path.name != "__main__.py"
    ]
    wanted = [name for name in modules if name.startswith(ENGINE_PACKAGES) and not _imports_its_engine(name)]
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


def test_adapters_import_their_engine_and_three_packages_only() -> None:
    allowed = ENGINE_THIRD_PARTY | sys.stdlib_module_names | {"blockyard"}
    for package, engine in ADAPTERS.items():
        files = list((ROOT / "shared" / package.replace(".", "/")).glob("**/*.py"))
        strange = {str(path.name): _imported(path) - allowed - engine for path in files}
        assert {name: found for name, found in strange.items() if found} == {}
        assert any(_imported(path) & engine for path in files)


def _imports_its_engine(module: str) -> bool:
    engine = next((found for package, found in ADAPTERS.items() if module.startswith(package)), set())
    path = ROOT / "shared" / module.replace(".", "/")
    return bool(engine & _imported(path / "__init__.py" if path.is_dir() else path.with_suffix(".py")))


def _imported(path: Path) -> set[str]:
    """First parts of everything that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module.split(".")[0])
    return names
