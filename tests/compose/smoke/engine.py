"""What the checks ask of an engine of containers, and the one that the machine has: docker.

The other one is ``podman.Podman``, which the run brings up by itself.
"""

import json
import shutil
from typing import Any, Protocol, final

from tests.compose.smoke.shell import Shell, SmokeError


class Engine(Protocol):
    """An engine with the stack in it."""

    def inspect(self, container: str) -> dict[str, Any]:
        """Everything about a container."""
        ...

    def run_script(self, image: str, script: str) -> None:
        """Run a shell script in a container of its own that has to succeed."""
        ...

    def leftovers(self) -> list[str]:
        """Containers, volumes and networks of the run that are still there."""
        ...


@final
class Docker:
    """The docker engine of this machine; nothing in it but what this run made is touched."""

    def __init__(self, shell: Shell, project: str) -> None:
        """Use it for the containers of ``project``."""
        self._shell = shell
        self._label = f"label=com.docker.compose.project={project}"

    def inspect(self, container: str) -> dict[str, Any]:
        """Everything about a container."""
        found: list[dict[str, Any]] = json.loads(self._shell.run("docker", "inspect", container))
        return found[0]

    def run_script(self, image: str, script: str) -> None:
        """Run a shell script in a container of its own that has to succeed."""
        self._shell.run("docker", "run", "--rm", "--network=none", "--entrypoint=sh", image, "-c", script)

    def leftovers(self) -> list[str]:
        """Containers, volumes and networks of the project that are still there."""
        found: list[str] = []
        for kind in (("ps", "--all"), ("volume", "ls"), ("network", "ls")):
            found += self._shell.run("docker", *kind, "--quiet", "--filter", self._label).split()
        return found


def docker_answers(shell: Shell) -> bool:
    """Whether a docker engine serves here."""
    if shutil.which("docker") is None:
        return False
    try:
        return shell.attempt("docker", "version", "--format", "{{.Server.Version}}", seconds=15.0).status == 0
    except SmokeError:
        return False
