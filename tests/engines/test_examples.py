"""The commands of the tutorial on vLLM, run as they stand there: an engine that forgets, a server that is restarted."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.architecture.doc_commands import Block, Runner, commands_of
from tests.engines.engine_process import QUIET, ROOT

from blockyard.cli.run_folder import RunFolder

pytestmark = pytest.mark.timeout(900)

BLOCKS = sorted({command.block for command in commands_of(Runner.ENGINES)}, key=lambda block: block.line)
START_SECONDS = 280
# The engine writes its log among the output of the program otherwise.
AS_ON_THE_PAGE = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}


@pytest.fixture(scope="module")
def folder(run_folder: RunFolder) -> Path:
    return run_folder.folder("x")


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Terminal:
    """Where somebody follows the page."""

    def __init__(self, folder: Path, port: int) -> None:
        self._log = folder / "background.log"
        self._names = {"/tmp/by-vllm": str(folder), "8123": str(port)}
        self._shells: list[subprocess.Popen[str]] = []

    def follow(self, block: Block) -> str:
        """Type a fence; what it starts in the background goes on. Returns what is printed on standard output."""
        text = block.text
        for shown, meant in self._names.items():
            text = text.replace(shown, meant)
        # The shell would wait for what still holds its output.
        text = text.replace(" &\n", f" >>{self._log} 2>&1 &\n")
        shell = subprocess.Popen(
            ["sh", "-eu", "-c", text],
            cwd=ROOT,
            env=os.environ | QUIET | AS_ON_THE_PAGE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._shells.append(shell)
        printed, _ = shell.communicate(timeout=START_SECONDS)
        assert shell.returncode == 0, f"{printed}\n{self._log.read_text(errors='replace')[-4_000:]}"
        return printed

    def end(self, shells: int) -> None:
        """End all that the last shells have left behind."""
        for shell in self._shells[-shells:]:
            try:
                os.killpg(shell.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        del self._shells[-shells:]

    def close(self) -> None:
        if self._shells:
            self.end(len(self._shells))


@pytest.fixture(scope="module")
def terminal(folder: Path, port: int) -> Iterator[Terminal]:
    terminal = Terminal(folder, port)
    yield terminal
    terminal.close()


def test_the_tutorial_does_what_it_says(terminal: Terminal) -> None:
    assert {block.page for block in BLOCKS} == {"docs/tutorials/vllm.md"}
    offline, server = BLOCKS
    assert terminal.follow(offline) == offline.shown
    # The second time the server finds what it has stored itself, or the engine before it.
    for _ in range(2):
        assert terminal.follow(server) == server.shown
        terminal.end(1)
