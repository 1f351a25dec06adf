"""``make`` in the documentation: its targets exist, and it is known what runs their recipes."""

import shutil
import subprocess
from typing import Final

import pytest
from tests.architecture.doc_commands import Command, Runner, commands_of
from tests.architecture.doc_tables import ROOT

RUN_BY: Final = {
    "up": "tests/docs/test_quickstart.py",
    "demo": "tests/docs/test_quickstart.py",
    "docs": "tests/docs/test_site.py",
    "dashboards": "tests/operations/test_dashboards.py",
    "install": ".ci/run",
    "check": ".ci/run",
    "test": ".ci/run",
    "test-engines": ".ci/run",
    "engines": ".ci/run",
    "bench": "tests/unit/bench",
    "bench-peers": "tests/architecture/test_makefile.py",
    "soak": "",
    "compose-smoke": "",
    "torch": "",
    "lock": "",
}
"""What runs the recipe of a target, or the same commands; what wants the network or minutes, nothing does."""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.mark.parametrize("command", commands_of(Runner.MAKE), ids=str)
def test_make_knows_what_to_do(command: Command) -> None:
    for program, *words in command.parts:
        assert program == "make"
        targets = [word for word in words if "=" not in word]
        assert [target for target in targets if target not in RUN_BY] == []
        done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)
        assert (done.returncode, done.stderr) == (0, "")


def test_what_runs_the_targets_exists() -> None:
    assert [path for path in RUN_BY.values() if not (ROOT / path).exists()] == []
    assert [line.split()[-1] for line in (ROOT / ".ci" / "run").read_text().splitlines() if "make" in line] == [
        "test",
        "test-engines",
    ]
