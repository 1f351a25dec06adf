"""Eviction policies by name: those of the library, and those of other packages, as the how-to shows one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from blockyard.core.errors import ConfigurationError
from blockyard.core.eviction import registry
from blockyard.core.eviction.registry import known_policies, policy_factory
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.settings_source import load_settings
from blockyard.testing.eviction_conformance import rows
from blockyard.testing.row_columns import NamedRows

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "extend.md").read_text()


def fences(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def entry_lines() -> str:
    """The entry points of the page as an installer writes them down."""
    (toml,) = fences("toml")
    return re.sub(r"""\[project\.entry-points\."(.*)"\]""", r"[\1]", toml).replace('"', "")


def install(folder: Path, distribution: str, entries: str) -> None:
    information = folder / f"{distribution}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(entries)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with installed packages, the one of the how-to among them."""
    (tmp_path / "deepest_first.py").write_text(fences("python")[0])
    install(tmp_path, "deepest_first", entry_lines())
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", known_policies())
def test_every_known_policy_makes_an_empty_order(name: str) -> None:
    policy = policy_factory(name)(NamedRows(3))
    assert (len(policy), list(policy)) == (0, [])


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError) as caught:
        policy_factory("lur")
    assert caught.value.fields == {"policy": "lur", "known": ", ".join(known_policies())}


@pytest.mark.parametrize("tier", ["g2", "g3"])
def test_a_node_refuses_an_unknown_policy_at_its_start_and_names_those_it_knows(tier: str) -> None:
    with pytest.raises(ConfigurationError, match="must be the name of an eviction policy: arc, fifo, ") as caught:
        load_settings({f"BLOCKYARD_{tier.upper()}__EVICTION": "lur"})
    assert caught.value.fields["key"] == f"{tier}.eviction"


def test_a_policy_of_another_package_is_known_by_its_name(site: Path) -> None:
    assert "deepest_first" in known_policies()
    columns = NamedRows(3)
    columns.name_chain(rows(0, 1))
    policy = policy_factory("deepest_first")(columns)
    policy.insert(rows(2, 0, 1))
    assert policy.take(2) == [1, 2]
    assert NodeSettings.model_validate({"g2": {"eviction": "deepest_first"}}).g2.eviction == "deepest_first"


def test_a_policy_of_another_package_passes_the_tests_that_come_with_the_library(site: Path) -> None:
    (site / "test_mine.py").write_text(fences("python")[1])
    path = f"{site}:{ROOT / 'shared'}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(site), str(site)],
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 30


def test_a_policy_that_cannot_be_imported_is_named_with_the_reason(site: Path) -> None:
    install(site, "broken", f"[{registry.GROUP}]\nbroken = no_such_module:Policy\nno_class = deepest_first:DEEPEST\n")
    with pytest.raises(ConfigurationError, match="cannot be imported") as caught:
        policy_factory("broken")
    assert caught.value.fields["place"] == "no_such_module:Policy"
    with pytest.raises(ConfigurationError, match="cannot be made"):
        policy_factory("no_class")


def test_two_packages_that_offer_one_name_are_refused_and_ours_cannot_be_taken(site: Path) -> None:
    install(
        site, "second", f"[{registry.GROUP}]\ndeepest_first = deepest_first:Other\nlru = deepest_first:DeepestFirst\n"
    )
    with pytest.raises(ConfigurationError, match="two packages"):
        policy_factory("deepest_first")
    assert policy_factory("lru").__module__ == "blockyard.core.eviction.lru"
