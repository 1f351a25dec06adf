"""The demo engine as a process: signals have a meaning from the first moment, and no refusal ends in a traceback."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blockyard.testing.scripted_manager import ScriptedManager, served

ENGINE = (sys.executable, "-m", "blockyard.connectors.mock")
WAIT_SECONDS = 20.0


def test_next_to_nothing_is_loaded_before_signals_have_a_meaning() -> None:
    program = (
        "import sys, blockyard.connectors.mock.__main__\n"
        "sys.exit(','.join({'asyncio', 'argparse', 'msgspec', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_while_it_is_still_loading(number: signal.Signals) -> None:
    """Also as the first process of a container, which is immune to signals that it does not handle."""
    program = (
        "import os, sys, types\n"
        "from blockyard.connectors.mock.__main__ import main\n"
        "loading = types.ModuleType('engine_program')\n"
        f"loading.run_engine = lambda: os.kill(os.getpid(), {int(number)}) or 0\n"
        "sys.modules['blockyard.connectors.mock.engine_program'] = loading\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (128 + number, "")


def test_more_memory_than_there_is_is_one_line() -> None:
    options = ("--socket", "/nowhere", "--name", "e", "--blocks", "999999999999")
    done = subprocess.run(
        [*ENGINE, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "blockyard demo engine: the system refused a call: [Errno 12] Cannot allocate memory\n"


async def test_nobody_who_reads_its_answers_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    options = ("--socket", str(path), "--name", "e", "--blocks", "4", "--block-bytes", "4096")
    reading, writing = os.pipe()
    os.close(reading)
    async with asyncio.timeout(WAIT_SECONDS), served(path, ScriptedManager()):
        process = await asyncio.create_subprocess_exec(
            *ENGINE, *options, stdin=asyncio.subprocess.DEVNULL, stdout=writing, stderr=asyncio.subprocess.PIPE
        )
        os.close(writing)
        _, stderr = await process.communicate()
    assert process.returncode == 1
    assert stderr == b"blockyard demo engine: the system refused a call: [Errno 32] Broken pipe\n"
