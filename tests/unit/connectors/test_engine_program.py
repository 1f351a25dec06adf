"""The demo engine as a process: no refusal ends in a traceback."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    options = ("--socket", str(path), "--name", "e", "--blocks", "24", "--block-bytes", "4096")
    reading, writing = os.pipe()
    os.close(reading)
    async with asyncio.timeout(WAIT_SECONDS), served(path, ScriptedManager()):
        process = await asyncio.create_subprocess_exec(
            *ENGINE, *options, stdin=asyncio.subprocess.DEVNULL, stdout=writing, stderr=asyncio.subprocess.PIPE
        )
        os.close(writing)
        _, stderr = await process.communicate()
    assert process.returncode == 1
    assert stderr.endswith(b"blockyard demo engine: the system refused a call: [Errno 32] Broken pipe\n")
    assert b"Traceback" not in stderr


@pytest.mark.parametrize("blocks", ["0", "-4", "23", "x", "nan", "9" * 30, "9" * 5_000])
def test_a_memory_that_takes_no_request_is_wrong_usage_and_the_least_is_named(blocks: str) -> None:
    done = refused("--blocks", blocks)
    assert "argument --blocks: " in done
    assert "is not a number of at least 24, the longest request of the trace" in done


@pytest.mark.parametrize("size", ["0", "-4096", "100", "x"])
def test_blocks_that_are_no_whole_pages_are_wrong_usage(size: str) -> None:
    assert f"argument --block-bytes: '{size}' is not a number of bytes in whole pages of 4096" in refused(
        "--block-bytes", size
    )


@pytest.mark.parametrize("ratio", ["nan", "2", "-1", "x", "inf"])
def test_a_ratio_out_of_bounds_names_both_bounds(ratio: str) -> None:
    assert f"argument --trace-ratio: '{ratio}' is not a number from 0 to 1" in refused(f"--trace-ratio={ratio}")


def test_more_memory_than_can_be_asked_for_is_one_line() -> None:
    done = run_engine("--blocks", "9" * 18)
    assert done.returncode == 1
    assert done.stderr.startswith("blockyard demo engine: the system refused a call: ")
    assert done.stderr.count("\n") == 1


async def test_it_says_soon_where_it_waits_for_its_node(tmp_path: Path) -> None:
    path = tmp_path / "wrong.sock"
    process = await asyncio.create_subprocess_exec(
        *(*ENGINE, "--socket", str(path), "--name", "e"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            said = (await process.stderr.readline()).decode()
    finally:
        process.kill()
        await process.communicate()
    assert said.startswith("e: waiting for the block-manager: no block-manager answered")
    assert f"socket={path}" in said


def run_engine(*options: str) -> subprocess.CompletedProcess[str]:
    command = (*ENGINE, "--socket", "/nowhere", "--name", "e", *options)
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)


def refused(*options: str) -> str:
    """What is said to wrong usage."""
    done = run_engine(*options)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr
