"""The real docker compose on the files of this checkout, under a project name of its own.

The program is taken out of its wheel: the console script beside it swallows the exit status.
"""

import importlib.util
import json
import os
import re
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from tests.compose.smoke.isolation import ROOT
from tests.compose.smoke.shell import Done, Shell, SmokeError

from blockyard.cli.embedded.ports import free_ports

COMPOSE_FILE: Final = ROOT / "docker-compose.yml"
PROOF_FILE: Final = ROOT / "deploy" / "compose.proof.yml"
"""Makes the stack fit for the proof run: small tiers, engines that wait to be told."""
_PORT: Final = re.compile(r"\$\{(PORT_[A-Z0-9_]+):-")
_OWN_IMAGE: Final = re.compile(r"blockyard/([a-z-]+):")
_IMAGES_SECONDS: Final = 900.0
_UP_SECONDS: Final = 180.0
_MANY_PROCESSES: Final = 4_096


def compose_program() -> Path:
    """The program of docker compose.

    Raises:
        SmokeError: the package is not installed.
    """
    spec = importlib.util.find_spec("compose")
    if spec is None or spec.origin is None:
        raise SmokeError("docker compose is not installed: make deploy-tools")
    return Path(spec.origin).with_name("docker-compose")


@final
@dataclass(frozen=True, slots=True)
class Compose:
    """One project."""

    shell: Shell
    project: str
    folder: Path
    """Where override and environment files lie."""
    profiles: tuple[str, ...] = ("demo", "observability")
    files: tuple[Path, ...] = (COMPOSE_FILE,)

    @property
    def words(self) -> list[str]:
        """Command line up to the verb; settings of the user are none of this run's business."""
        settings = self.folder / "no-settings.env"
        settings.write_text(f"SETTINGS_FILE={os.devnull}\n")
        files = [word for file in self.files for word in ("--file", str(file))]
        profiles = [word for profile in self.profiles for word in ("--profile", profile)]
        return [str(compose_program()), "--project-name", self.project, "--env-file", str(settings), *files, *profiles]

    def run(self, *words: str, seconds: float = 60.0) -> str:
        """A command that has to succeed."""
        return self.shell.run(*self.words, *words, seconds=seconds)

    def attempt(self, *words: str, seconds: float = 60.0) -> Done:
        """A command, whatever its status."""
        return self.shell.attempt(*self.words, *words, seconds=seconds)

    def config(self) -> dict[str, Any]:
        """The whole project as compose understands it."""
        found: dict[str, Any] = json.loads(self.run("config", "--format", "json"))
        return found

    def make_images(self) -> None:
        """Build ours and pull those of others: what takes as long as the network wants has no part in starting."""
        self.run("build", seconds=_IMAGES_SECONDS)
        self.run("pull", "--quiet", "--policy", "missing", "--ignore-buildable", seconds=_IMAGES_SECONDS)

    def up(self, services: Sequence[str], *options: str) -> None:
        """Start services and wait until all are healthy.

        Raises:
            SmokeError: one is not in time; holds the end of the logs of those that are not.
        """
        wait = ("--wait", "--wait-timeout", str(int(_UP_SECONDS)))
        done = self.attempt("up", "--detach", *wait, *options, *services, seconds=_UP_SECONDS + 20.0)
        if done.status != 0:
            said = "\n".join(done.text.splitlines()[-5:])
            logs = self.attempt("logs", "--no-color", "--tail", "8").text
            raise SmokeError(f"not everything became healthy:\n{said}\n{logs}")

    def id_of(self, service: str) -> str:
        """Id of the container of a service."""
        return self.run("ps", "--all", "--quiet", service).strip()

    def down(self) -> None:
        """Stop and remove containers, networks and volumes."""
        self.run("down", "--volumes", "--timeout", "15", seconds=120.0)


def own_target(service: Mapping[str, Any]) -> str:
    """Target of the Dockerfile that makes the image of a service; empty where the image is made by others."""
    found = _OWN_IMAGE.match(service["image"])
    return found[1] if found else ""


def free_port_variables() -> dict[str, str]:
    """Variables that publish every port somewhere else, where nobody listens; for an engine that others use too."""
    names = sorted(set(_PORT.findall(COMPOSE_FILE.read_text())))
    return {name: str(port) for name, port in zip(names, free_ports(len(names)), strict=True)}


def within_limits(config: Mapping[str, Any], folder: Path) -> Path:
    """An override that asks for no higher limits than this process may set; returns its path.

    A process that may not raise limits starts no container that asks for more, or that leaves the engine its choice.
    """
    most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most_processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    services = {}
    for name, service in config["services"].items():
        wanted = service.get("ulimits", {}).get("nofile", most_files)
        limits = {"nofile": _least(wanted, most_files), "nproc": _least(_MANY_PROCESSES, most_processes)}
        services[name] = {"ulimits": limits}
    path = folder / "limits.json"
    path.write_text(json.dumps({"services": services}))
    return path


def _least(wanted: int, most: int) -> int:
    return wanted if most == resource.RLIM_INFINITY else min(wanted, most)
