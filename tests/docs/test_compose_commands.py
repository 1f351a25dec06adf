"""``docker compose`` in the documentation: checked by compose itself as far as it goes without an engine of containers.

What the commands start is run by ``make compose-smoke``.
"""

import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.doc_commands import Command, Runner, commands_of, lines
from tests.architecture.doc_tables import ROOT
from tests.compose.project import installed
from tests.compose.smoke.compose import compose_program

from blockyard.cli.child_process import child_environment

_GLOBAL: Final = ("-f", "--file", "--profile", "--env-file", "-p", "--project-name")
_VALUED: Final = ("-n", "--tail", "-t", "--timeout", "--scale", "--since", "-s", "--signal", "-e", "--env", "--format")
_ONE_SERVICE: Final = ("exec", "run", "port")
"""What follows the service is no service."""

pytestmark = pytest.mark.skipif(not installed(), reason="compose comes with make deploy-tools")
COMMANDS = [command for command in commands_of(Runner.COMPOSE) if not command.prepares]


def split(words: list[str]) -> tuple[list[str], str, list[str]]:
    """Options of compose, verb, and what follows it."""
    rest, options = words[2:], []
    while rest and rest[0].partition("=")[0] in _GLOBAL:
        name, equals, value = rest.pop(0).partition("=")
        options += [name, value if equals else rest.pop(0)]
    return options, rest[0], rest[1:]


def services(verb: str, words: list[str]) -> list[str]:
    """Services that a command names."""
    named, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        if word in _VALUED:
            rest.pop(0)
        elif not word.startswith("-"):
            named.append(word)
            if verb in _ONE_SERVICE:
                break
    return named


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files that compose reads, where a page may make more."""
    for name in ("docker-compose.yml", "Dockerfile", "deploy", "charts"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    return tmp_path


def compose(folder: Path, variables: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    environment = child_environment(os.environ, {"DOCKER_HOST": "unix:///nowhere.sock"} | variables)
    return subprocess.run(
        [str(compose_program()), *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def prepare(command: Command, folder: Path) -> dict[str, str]:
    """Do what stands before a command in its fence; the variables that it finds."""
    variables: dict[str, str] = {}
    for line in lines(command.block):
        if line == command:
            break
        if line.prepares:
            variables |= line.environment
            subprocess.run(["sh", "-eu", "-c", line.text], cwd=folder, check=True, timeout=30)
    return variables | command.environment


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_compose_accepts_files_options_and_services(command: Command, folder: Path) -> None:
    variables = prepare(command, folder)
    for words in command.parts:
        if words[1:2] == ["demo"]:
            assert [option for option in words[2::2] if option != "--compose"] == []
            assert all((folder / file).exists() for file in words[3::2])
        if words[:2] != ["docker", "compose"]:
            continue
        options, verb, rest = split(words)
        accepted = compose(folder, variables, *options, "config", "--quiet")
        assert accepted.returncode == 0, accepted.stderr
        # Options are read before the help is shown: an unknown one is an error.
        understood = compose(folder, variables, *options, verb, "--help", *rest)
        assert (understood.returncode, f"docker compose {verb}" in understood.stdout) == (0, True), understood.stderr
        known = compose(folder, variables, *options, "--profile", "*", "config", "--services").stdout.split()
        assert set(services(verb, rest)) <= set(known)
        # One that nobody has is no error for compose.
        profiles = compose(folder, variables, *options, "config", "--profiles").stdout.split()
        assert {value for name, value in pairwise(options) if name == "--profile"} <= {"*", *profiles}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("docker compose -f docker-compose.yml --profile demo up -d --wait", (["up"], [])),
        ("docker compose --profile=demo stop engine-a", (["stop"], ["engine-a"])),
        ("docker compose logs --tail 5 block-manager-a", (["logs"], ["block-manager-a"])),
        ("docker compose exec -T block-manager-a blockyard-health ready", (["exec"], ["block-manager-a"])),
    ],
)
def test_what_a_command_names(text: str, words: tuple[list[str], list[str]]) -> None:
    _, verb, rest = split(text.split())
    assert ([verb], services(verb, rest)) == words


@pytest.mark.parametrize(
    "words", [("up", "--help", "--no-such-option"), ("-f", "nowhere.yml", "config"), ("no-such-verb", "--help")]
)
def test_what_compose_does_not_know_is_an_error(words: tuple[str, ...], folder: Path) -> None:
    done = compose(folder, {}, *words)
    assert done.returncode != 0 or "Usage:  docker compose up" not in done.stdout
