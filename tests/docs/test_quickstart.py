"""The quickstart, followed word by word in a fresh clone.

Only the installation is borrowed from this environment, and the proof run is the small one: ``tests/e2e`` has the large
one, and both print the same words.
"""

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.doc_commands import QUICKSTART, Block, Command, Runner, blocks, commands_of, fences, lines
from tests.architecture.doc_tables import ROOT
from tests.docs.terminal import Terminal, missing_lines, pattern_of, printed_value

from blockyard.cli.child_process import child_environment
from blockyard.testing.launcher import Launcher

PAGE: Final = ROOT / QUICKSTART
_ASSIGNMENT: Final = re.compile(r"([A-Z]+)=(\S+)")
_STEP_SECONDS: Final = 200.0
_START_SECONDS: Final = 60.0
_NOT_CLONED: Final = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__", "site", "*.egg-info")

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(not all(map(shutil.which, ("git", "make", "curl"))), reason="needs git, make and curl"),
]


class Walk:
    """A person with two terminals."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        """Start in an empty folder."""
        self.folder = folder
        self.environment = environment
        self.running: Terminal | None = None
        self.done: list[Command] = []
        self._start_shown = ""

    def follow(self, block: Block) -> None:
        """Do what a fence says and compare what it shows."""
        output = "".join(self._do(command, block.shown or "") for command in lines(block))
        assert missing_lines(block.shown or "", output) == [], output

    def _do(self, command: Command, shown: str) -> str:
        self.done.append(command)
        if command.text == "make up":
            self.running = Terminal(command.text, self.folder, self.environment)
            self.running.wait_for(lambda text: not missing_lines(shown, text), _START_SECONDS)
            self._start_shown = shown
            return self.running.text
        if command.parts[0][:1] == ["cd"]:
            self.folder = self.folder / command.parts[0][1]
            return ""
        if (assigned := _ASSIGNMENT.fullmatch(command.text)) is not None:
            name, example = assigned.groups()
            assert self.running is not None
            self.environment[name] = printed_value(example, self._start_shown, self.running.text)
            return ""
        return self._run(command.text)

    def _run(self, text: str) -> str:
        done = subprocess.run(
            ["sh", "-eu", "-c", text],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_STEP_SECONDS,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        if text.startswith("git clone"):
            borrow_installation(self.folder / "blockyard")
        return done.stdout


def borrow_installation(clone: Path) -> None:
    """What ``make install`` would make, by the programs of this environment: they run the same sources."""
    programs = clone / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("blockyard", "python"):
        program = Path(sysconfig.get_path("scripts")) / name
        (programs / name).write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
        (programs / name).chmod(0o755)
    for stamp in (".installed-lock", ".installed-self"):
        (clone / ".venv" / stamp).touch()


def repository(folder: Path) -> Path:
    """The sources as they are now, as something that can be cloned."""
    shutil.copytree(ROOT, folder, ignore=_NOT_CLONED)
    who = ("-c", "user.name=blockyard", "-c", "user.email=blockyard@localhost")
    for words in (("init", "-q"), ("add", "--all"), (*who, "commit", "-qm", "sources")):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=60)
    return folder


@pytest.fixture
def walk(request: pytest.FixtureRequest) -> Iterator[Walk]:
    """Nothing of the steps is left at the end."""
    with tempfile.TemporaryDirectory(prefix="by-") as folder:
        (Path(folder) / "tmp").mkdir()
        launcher = Launcher(f"{os.getpid()}-{request.node.name}", Path(folder) / "tmp")
        added = {
            "REPOSITORY": str(repository(Path(folder) / "origin")),
            "TMPDIR": str(launcher.temporary),
            "RUN_MARK": launcher.mark,
            "DEMO": "--short",
        }
        walk = Walk(Path(folder), child_environment(os.environ, added))
        try:
            yield walk
        finally:
            if walk.running is not None:
                walk.running.__exit__()
        launcher.assert_nothing_left()


def test_every_step_does_and_shows_what_the_page_says(walk: Walk) -> None:
    steps = list(blocks(PAGE))
    texts = [fence.text for fence in fences(PAGE) if fence.kind == "text"]
    assert [step.shown for step in steps if step.shown] == texts[:-1], "each text stands behind its commands"
    for step in steps:
        walk.follow(step)
    assert walk.done == commands_of(Runner.QUICKSTART)
    assert walk.running is not None
    assert walk.running.interrupt(seconds=30.0) == 0
    assert missing_lines(texts[-1], walk.running.text) == []


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("disk                     894 MiB", "disk                     1.1 GiB"),
        ("│ nixl-posix-uring │ G3   │  1,027 │", "│ plain │ G3   │ 0 │"),
        ("run folder /tmp/blockyard-ndre13xd; Ctrl-C", "run folder /var/tmp/x/blockyard-aaaa_bbb; Ctrl-C"),
        ('{"removed":756,"done":true}', '{"removed":0,"done":true}'),
    ],
)
def test_figures_may_differ(shown: str, printed: str) -> None:
    assert re.fullmatch(pattern_of(shown), printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("verified G2 1", "verified G3 1"),
        ("OK", "failed"),
        ('"done":true', '"done":false'),
        ("wrong bytes 0\nOK", "OK\nwrong bytes 0"),
    ],
)
def test_words_and_their_order_may_not(shown: str, printed: str) -> None:
    assert missing_lines(shown, printed)


def test_a_value_is_taken_from_where_the_page_shows_it() -> None:
    shown = "REST docs of a: http://127.0.0.1:1/docs\nREST docs of b: http://127.0.0.1:2/docs\n"
    text = "x\nREST docs of a: http://127.0.0.1:77/docs\nREST docs of b: http://127.0.0.1:88/docs\n"
    assert printed_value("http://127.0.0.1:2", shown, text) == "http://127.0.0.1:88"
    with pytest.raises(LookupError):
        printed_value("http://127.0.0.1:3", shown, text)
