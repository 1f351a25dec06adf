"""Commands of this project in the documentation, run as they stand there."""

import os
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.architecture.doc_commands import Block, Runner, commands_of, fences
from tests.architecture.doc_tables import ROOT

BLOCKS = sorted({command.block for command in commands_of(Runner.SHELL)}, key=lambda block: (block.page, block.line))


def file_before(block: Block) -> str | None:
    """The file that a page shows right before the commands that read it."""
    for before, fence in pairwise(fences(ROOT / block.page)):
        if fence.line == block.line and before.kind == "yaml":
            return before.text
    return None


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a name that leaves room for the paths of sockets."""
    with tempfile.TemporaryDirectory(prefix="by-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}:{block.line}")
def test_commands_do_what_the_page_says(block: Block, short_path: Path) -> None:
    if (text := file_before(block)) is not None:
        # The folders of the example belong to a machine that is set up for it.
        (short_path / "blockyard.yaml").write_text(text.replace(" /", f" {short_path}/"))
    (short_path / ".venv").symlink_to(Path(sysconfig.get_path("scripts")).parent)
    done = subprocess.run(
        ["sh", "-eu", "-c", block.text],
        cwd=short_path,
        env=os.environ | {"PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    if block.shown is None:
        assert done.returncode == 0, done.stdout
    else:
        assert done.stdout == block.shown
