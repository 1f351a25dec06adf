"""A compose command succeeds, or ends in an error that names it; none is left behind."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cli.compose.conftest import Script

from blockyard.cli.compose.command import ComposeCommand
from blockyard.cli.failures import ComposeError
from blockyard.core.errors import ConfigurationError


def test_the_command_line_says_which_project_is_meant() -> None:
    command = ComposeCommand(("docker", "compose"), [Path("a.yml"), Path("b c.yml")], "p", "demo")
    line = "docker compose --file a.yml --file 'b c.yml' --project-name p --profile demo ps"
    assert command.line("ps") == line


async def test_output_comes_back(script: Script) -> None:
    script.on("ps", "some\n", errors="a warning")
    assert await script.command.run("ps") == "some\n"


async def test_a_failure_says_which_command_and_how_its_complaint_ended_but_nothing_of_its_output(
    script: Script,
) -> None:
    script.on("config", "secret", errors="x" * 5_000 + "the end", status=15)
    with pytest.raises(ComposeError, match=r"config --quiet ended with status 15.*\n.*the end") as caught:
        await script.command.run("config", "--quiet")
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 3_000


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[ComposeCommand]:
    """One that leaves its number in a file, and a helper in a session of its own that holds its output."""
    words = ("sh", "-c", f"cd {tmp_path}; setsid sleep 60 & echo $! > helper; echo $$ > hangs; sleep 600", "compose")
    yield ComposeCommand(words, [], "", "demo")
    os.kill(int((tmp_path / "helper").read_text()), signal.SIGKILL)


def hangs(folder: Path) -> bool:
    """Whether the command runs."""
    file = folder / "hangs"
    number = file.read_text().strip() if file.exists() else ""
    return bool(number) and Path("/proc", number).exists()


async def test_a_command_that_hangs_is_ended_and_named(tmp_path: Path, hanging: ComposeCommand) -> None:
    async with asyncio.timeout(20):
        with pytest.raises(ComposeError, match=r"up did not end within 2 s"):
            await hanging.run("up", limit_seconds=2.0)
    assert (tmp_path / "hangs").exists()
    assert not hangs(tmp_path)


async def test_a_command_ends_with_who_waits_for_it(tmp_path: Path, hanging: ComposeCommand) -> None:
    waiting = asyncio.create_task(hanging.run("up"))
    async with asyncio.timeout(20):
        while not hangs(tmp_path):
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert not hangs(tmp_path)


async def test_a_helper_that_a_command_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    command = ComposeCommand(("sh", "-c", "sleep 60 & echo $!", "compose"), [], "", "demo")
    async with asyncio.timeout(20):
        helper = await command.run("up")
    os.kill(int(helper), signal.SIGKILL)


async def test_a_program_that_is_not_there_is_a_wrong_option() -> None:
    command = ComposeCommand(("/nowhere/docker", "compose"), [], "", "demo")
    with pytest.raises(ConfigurationError, match=r"--compose-command.*/nowhere/docker"):
        await command.run("ps")
