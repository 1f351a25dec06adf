"""The demo engine as a process: no refusal ends in a traceback."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from blockyard.testing.scripted_manager import ScriptedManager, served

ENGINE = (sys.executable, "-m", "blockyard.connectors.mock")
WAIT_SECONDS = 20.0


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
