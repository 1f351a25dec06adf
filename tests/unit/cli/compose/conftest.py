"""A scripted compose command, and projects that are read through it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from blockyard.cli.compose.command import ComposeCommand
from blockyard.cli.compose.project import ComposeProject

PROGRAM = Path(__file__).with_name("fake_compose.py")
NODE_SERVICES = ("block-manager", "offload-worker", "remote-tier", "engine")


class Script:
    """What the command will answer, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._script = folder / "script.jsonl"
        self._script.touch()
        self.command = ComposeCommand((sys.executable, "-S", str(PROGRAM), str(folder)), [Path("c.yml")], "", "demo")

    def on(self, when: str, output: str = "", *, errors: str = "", status: int = 0, keep: bool = True) -> None:
        """Answer like this to what begins with ``when``; once, unless it is kept."""
        line = {"when": when, "output": output, "errors": errors, "status": status, "keep": keep}
        with self._script.open("a") as script:
            script.write(f"{json.dumps(line)}\n")

    def containers(self, running: list[str], exited: list[str], *, keep: bool = True) -> None:
        """Answer like this to the question for containers."""
        rows = [{"Service": name, "State": "running", "ExitCode": 0} for name in running]
        rows += [{"Service": name, "State": "exited", "ExitCode": 137} for name in exited]
        self.on("ps", "".join(f"{json.dumps(row)}\n" for row in rows), keep=keep)

    def asked(self) -> list[str]:
        """Everything so far."""
        return (self.folder / "asked").read_text().splitlines()

    async def project(self, **services: dict[str, Any]) -> ComposeProject:
        """A project with both nodes and these services."""
        nodes: dict[str, dict[str, Any]] = {f"{service}-{name}": {} for service in NODE_SERVICES for name in ("a", "b")}
        renamed = {name.replace("_", "-"): body for name, body in services.items()}
        self.on("config", json.dumps({"name": "p", "services": nodes | renamed}), keep=False)
        return await ComposeProject.read(self.command)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)
