"""The compose files of this checkout, resolved by compose itself; it needs no engine of containers for that.

Invariants: files do not change while tests run; each answer of compose is asked for once. Threading: none.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.charts.dockerfile import stages
from tests.compose.smoke.compose import COMPOSE_FILE, compose_program, own_target
from tests.compose.smoke.isolation import ROOT
from tests.compose.smoke.shell import SmokeError

from blockyard.runtime.memory_limit import MemoryLimit
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.settings_source import load_settings
from blockyard_offload_worker.arena_owner import ArenaPlan

OWN_SERVERS_FILE: Final = ROOT / "deploy" / "compose.own-servers.yml"
OWN_SERVERS: Final = {
    "BLOCKYARD_NATS__URL": "nats://user:word@nats.internal:4222",
    "BLOCKYARD_REDIS__URL": "redis://:word@redis.internal:6379/0",
    "BLOCKYARD_G4__ENDPOINT_URL": "https://s3.internal",
    "BLOCKYARD_G4__ACCESS_KEY": "account",
    "BLOCKYARD_G4__SECRET_KEY": "word",
}
"""What the file of one's own servers asks for."""
PROFILES: Final = ((), ("demo",), ("observability",), ("demo", "observability"))
SERVICES: Final = ("block-manager", "offload-worker", "remote-tier")
NODES: Final = ("a", "b")
_SECONDS: Final = 30.0


def installed() -> bool:
    """Whether compose is here."""
    try:
        return compose_program().exists()
    except SmokeError:
        return False


def ask(
    *words: str,
    files: Sequence[Path] = (COMPOSE_FILE,),
    profiles: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``compose config`` with nothing but the given variables, and no files of settings beside it."""
    options = [word for file in files for word in ("--file", str(file))]
    options += [word for profile in profiles for word in ("--profile", profile)]
    return subprocess.run(
        [
            str(compose_program()),
            "--env-file",
            os.devnull,
            "--project-directory",
            str(ROOT),
            *options,
            "config",
            *words,
        ],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "SETTINGS_FILE": os.devnull, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )


def resolved(
    *files: Path, profiles: Sequence[str] = ("demo", "observability"), environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What compose makes of files that it accepts; the caller may change it."""
    found: dict[str, Any] = json.loads(_resolved_text(files, tuple(profiles), tuple((environment or {}).items())))
    return found


@cache
def _resolved_text(files: tuple[Path, ...], profiles: tuple[str, ...], variables: tuple[tuple[str, str], ...]) -> str:
    done = ask("--format", "json", files=(COMPOSE_FILE, *files), profiles=profiles, environment=dict(variables))
    assert done.returncode == 0, done.stderr
    return done.stdout


def settings_of(service: dict[str, Any]) -> NodeSettings:
    """Settings that a container gets: what its image says, and what compose says above it."""
    image = stages()[own_target(service)].environment
    ours = {name: value for name, value in image.items() if name.startswith("BLOCKYARD_")}
    return load_settings({**ours, **service["environment"]})


def require_memory(worker: dict[str, Any]) -> None:
    """See that an offload-worker would start with the memory that its container may have.

    Raises:
        ConfigurationError: it would not.
    """
    settings = settings_of(worker)
    disk_slots = int(settings.g3.capacity) // int(settings.node.block_bytes)
    ArenaPlan.of(settings).check_memory(MemoryLimit(int(worker["mem_limit"]), Path("compose")), disk_slots)
