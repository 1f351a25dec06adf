"""A compose command succeeds, or ends in an error that names it; none is left behind."""

import asyncio
import time
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


async def test_a_command_that_hangs_is_ended_and_named(script: Script) -> None:
    script.on("up", seconds=600)
    began = time.monotonic()
    with pytest.raises(ComposeError, match=r"up did not end within 0\.5 s"):
        await script.command.run("up", limit_seconds=0.5)
    assert time.monotonic() - began < 20


async def test_a_command_ends_with_who_waits_for_it(script: Script) -> None:
    script.on("up", seconds=600)
    waiting = asyncio.create_task(script.command.run("up"))
    async with asyncio.timeout(20):
        while not (script.folder / "asked").exists():
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_program_that_is_not_there_is_a_wrong_option() -> None:
    command = ComposeCommand(("/nowhere/docker", "compose"), [], "", "demo")
    with pytest.raises(ConfigurationError, match=r"--compose-command.*/nowhere/docker"):
        await command.run("ps")
