"""What the parts of a run tell each other through the folder of the run: what to do, and what came out."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

from tests.compose.smoke.shell import Deadline, Shell

_PLAN: Final = "plan.json"
_FOREIGN: Final = ("BLOCKYARD_", "COMPOSE_", "PORT_", "SETTINGS_FILE")
_OF_ENGINE: Final = ("DOCKER_",)


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """One run, as its parts see it."""

    folder: str
    driver: str
    seconds: float
    short: bool

    @property
    def path(self) -> Path:
        """Folder of the run."""
        return Path(self.folder)

    @property
    def project(self) -> str:
        """Name that compose gives to everything it makes."""
        return "blockyard-smoke"

    def shell(self, *, own_engine: bool = True) -> Shell:
        """Shell of a part; variables that compose would read are taken away first.

        Args:
            own_engine: whether this run brings up an engine: then those that lead to another one are among them.
        """
        foreign = (*_FOREIGN, *_OF_ENGINE) if own_engine else _FOREIGN
        for name in [name for name in os.environ if name.startswith(foreign)]:
            del os.environ[name]
        return Shell(self.path / "smoke.log", Deadline(self.seconds))

    def write(self) -> None:
        """Leave it for the parts."""
        (self.path / _PLAN).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> "Plan":
        """What :meth:`write` left."""
        return cls(**json.loads((folder / _PLAN).read_text()))


def say(text: str) -> None:
    """Progress, for people."""
    print(text, flush=True)  # noqa: T201


def leave(folder: Path, name: str, facts: dict[str, Any]) -> None:
    """Keep what a part found out."""
    (folder / f"{name}.json").write_text(json.dumps(facts))


def left(folder: Path, name: str) -> dict[str, Any]:
    """What a part found out; empty where it did not come so far."""
    path = folder / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found
