"""Documentation says what the code says: names exist, links lead somewhere, tables and examples are up to date."""

import ast
import importlib
import re
from pathlib import Path

import pytest
from tests.architecture.doc_names import FENCE, Names, file_of, unknown_names, without_code
from tests.architecture.doc_tables import DOCS, MADE, ROOT, metric_names, setting_keys, with_table

from blockyard.runtime.settings_source import load_settings

PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
NAMES = Names.of_sources()
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_name_in_code_marks_exists(page: Path) -> None:
    assert unknown_names(page.read_text(), NAMES) == []


@pytest.mark.parametrize(
    "planted",
    [
        "core/gone.py",
        "shared/blockyard/nowhere/",
        "gone.py",
        "BlockPool.vanish",
        "core.pool.vanish",
        "blockyard.core.gone",
        "g3.capacities",
        "node.hostPaths.state",
        "VanishedClass",
        "VANISHED_CONSTANT",
        "blockyard_vanished_total",
        "BLOCKYARD_G3__CAPACITIES",
        "VanishedClass(socket)",
        "vanished_call(run)",
    ],
)
def test_a_planted_name_is_found(planted: str) -> None:
    assert unknown_names(f"see `{planted}` there", NAMES) == [planted]


@pytest.mark.parametrize(
    "real",
    [
        "core/pool.py",
        "block_manager/api/",
        "shared/blockyard/core",
        "BlockPool.allocate",
        "core.pool.BlockPool",
        "blockyard.core.pool",
        "g3.capacity",
        "node.hostPath.state",
        "BlockPool",
        "MAX_EVENT_BLOCKS",
        "blockyard_lookups_total",
        "BLOCKYARD_G3__CAPACITY",
        "EngineMemory(blocks, block_bytes)",
        "wait_connected(timeout_seconds)",
        "plain words",
        "/v1/tiers",
    ],
)
def test_a_real_name_is_not(real: str) -> None:
    assert unknown_names(f"see `{real}` there", NAMES) == []


def anchors(page: Path) -> set[str]:
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(without_code(page.read_text())):
        target, _, anchor = link.partition("#")
        file = (page.parent / target) if target else page
        if not re.match(r"https?://", link) and (not file.exists() or (anchor and anchor not in anchors(file))):
            broken.append(link)
    assert broken == []


def test_the_index_names_every_page() -> None:
    listed = {link for link in LINK.findall((DOCS / "index.md").read_text()) if link.endswith(".md")}
    assert listed == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}


@pytest.mark.parametrize("name", MADE)
def test_tables_are_up_to_date(name: str) -> None:
    page = (DOCS / MADE[name][0]).read_text()
    assert page == with_table(page, name), "write them with: python -m tests.architecture.doc_tables"


def test_the_tables_hold_every_setting_and_metric_with_its_text() -> None:
    page = (DOCS / "reference/settings.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    texts = {row[0].strip("| `"): row[-1].strip("| ") for row in rows}
    assert [key for key in setting_keys() if not texts.get(key)] == []
    assert all(f"| `{name}` |" in (DOCS / "reference/metrics.md").read_text() for name in metric_names())


def test_every_setting_is_read_by_some_code() -> None:
    sources = [path for root in ("shared", "services") for path in (ROOT / root).rglob("*.py")]
    reads = {
        node.attr
        for path in sources
        if path.name != "settings.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    assert [key for key in setting_keys() if key.split(".")[1] not in reads] == []


def test_the_settings_in_the_examples_are_accepted(tmp_path: Path) -> None:
    blocks = [body for kind, body in FENCE.findall((DOCS / "reference/settings.md").read_text()) if kind == "yaml"]
    assert blocks
    for block in blocks:
        (tmp_path / "settings.yaml").write_text(block)
        load_settings({"BLOCKYARD_CONFIG": str(tmp_path / "settings.yaml")})


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_imports_in_examples_exist(page: Path) -> None:
    for kind, body in FENCE.findall(page.read_text()):
        for node in ast.walk(ast.parse(body)) if kind == "python" else ():
            if isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_files_are_found_from_the_folder_of_their_package() -> None:
    assert file_of("core/pool.py") == ROOT / "shared/blockyard/core/pool.py"
    assert file_of("block_manager/flights.py") == ROOT / "services/blockyard_block_manager/flights.py"
    assert file_of("flights.py") is None
