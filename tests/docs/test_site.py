"""The documentation builds without a warning, and its pages ask no other host for anything."""

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import urljoin, urlsplit

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
_LOADING: Final = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "link": ("href",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "object": ("data",),
    "embed": ("src",),
    "image": ("href", "xlink:href"),
    "use": ("href", "xlink:href"),
    "form": ("action",),
}
"""Attributes that make a browser ask for something by itself."""
_STYLE_URL: Final = re.compile(r"(?:url\(|@import )\s*[\"']?((?:https?:)?//[^\"')\s]+)")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="mkdocs comes with make deploy-tools"
)


class Loads(HTMLParser):
    """Addresses that a page loads."""

    def __init__(self, page: str) -> None:
        """Read a page."""
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)
        self.addresses += _STYLE_URL.findall(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element loads."""
        values = dict(attrs)
        if tag == "link" and (values.get("rel") or "") in ("canonical", "next", "prev", "alternate"):
            return  # says where something is; asks for nothing
        self.addresses += [value for name in _LOADING.get(tag, ()) if (value := values.get(name))]


def foreign(page: str) -> list[str]:
    """What a page loads from another host."""
    base = "http://site.invalid/page.html"
    return [
        address
        for address in Loads(page).addresses
        if urlsplit(joined := urljoin(base, address)).hostname not in ("site.invalid", None)
        and urlsplit(joined).scheme != "data"
    ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    return folder


def test_every_page_becomes_a_page_of_the_site(site: Path) -> None:
    sources = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    pages = {page.relative_to(site) for page in site.rglob("*.html")}
    assert pages == sources | {Path("404.html")}


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loads = {
        str(file.relative_to(site)): found for file in site.rglob("*.html") if (found := foreign(file.read_text()))
    }
    styles = {
        str(file.relative_to(site)): found
        for file in site.rglob("*.css")
        if (found := _STYLE_URL.findall(file.read_text()))
    }
    assert (loads, styles) == ({}, {})


def test_nothing_makes_the_scripts_of_the_theme_ask_another_host(site: Path) -> None:
    """They fetch figures of a repository that is named, a diagram library for such diagrams, and what plugins add."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert not {"repo_url", "extra_javascript", "extra_css"} & settings.keys()
    assert settings["plugins"] == ["search"]
    assert [page for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text()] == []


@pytest.mark.parametrize(
    "planted",
    [
        '<img src="https://elsewhere.example/x.png">',
        '<script src="//elsewhere.example/x.js"></script>',
        '<link rel="stylesheet" href="http://elsewhere.example/x.css">',
        "<style>@import 'https://elsewhere.example/x.css'</style>",
        '<div style="background: url(https://elsewhere.example/x.png)"></div>',
    ],
)
def test_a_planted_load_is_found(planted: str) -> None:
    assert len(foreign(planted)) == 1


def test_links_and_own_files_are_none() -> None:
    assert (
        foreign('<a href="https://elsewhere.example/">x</a><img src="../images/x.png"><script src="x.js"></script>')
        == []
    )
