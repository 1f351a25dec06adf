"""First part of a run on podman: all images, made here because no registry can be reached.

``python -m tests.compose.smoke.prepare FOLDER``. Has the machine's network, for packages; nothing is running yet.
"""

import shutil
import sys
import time
from pathlib import Path
from typing import Any, Final

from tests.compose.smoke.base_image import base_archive
from tests.compose.smoke.compose import Compose, own_target
from tests.compose.smoke.isolation import ROOT
from tests.compose.smoke.package_index import package_index
from tests.compose.smoke.plan import Plan, leave, say
from tests.compose.smoke.podman import Podman
from tests.compose.smoke.shell import SmokeError
from tests.compose.smoke.stand_ins import build_stand_in, stand_ins

_BASE: Final = "docker.io/library/python:3.11-slim-bookworm"
CONTEXT: Final = ("Dockerfile", ".dockerignore", "pyproject.toml", "deploy/locks", "shared", "services")
"""What images are built from."""


def main() -> int:
    """Make the images; returns the exit code."""
    plan = Plan.read(Path(sys.argv[1]))
    try:
        _prepare(plan)
    except SmokeError as error:
        say(f"FAILED: {error}")
        return 1
    return 0


def _prepare(plan: Plan) -> None:
    shell = plan.shell()
    services: dict[str, Any] = Compose(shell, plan.project, plan.path).config()["services"]
    podman = Podman(shell, plan.path / "podman", plan.driver)
    began = time.monotonic()
    say("base image: Debian and Python (a minute, unless an earlier run left it)")
    podman.import_base(base_archive(shell, plan.path), _BASE)
    made = stand_ins()
    for service, stand_in in made.items():
        say(f"stand-in for {services[service]['image']}")
        build_stand_in(podman, stand_in, base=_BASE, image=services[service]["image"], work=plan.path)
    options = package_index(shell, plan.path).build_options()
    context = _context(plan.path)
    own = {service["image"]: target for service in services.values() if (target := own_target(service))}
    for image, target in own.items():
        say(f"building {image} from the Dockerfile")
        podman.build(context, f"docker.io/{image}", target=target, options=options)
    shutil.rmtree(context)
    skipped = [name for name, service in services.items() if not own_target(service) and name not in made]
    facts = {
        "images": sorted([*own, *(services[name]["image"] for name in made)]),
        "skipped": {name: f"no program for {services[name]['image']} here" for name in skipped},
        "images_seconds": round(time.monotonic() - began, 1),
    }
    leave(plan.path, "prepare", facts)


def _context(folder: Path) -> Path:
    """A copy of what is built from, so that all images are made of the same sources."""
    context = folder / "context"
    for name in CONTEXT:
        source, target = ROOT / name, context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return context


if __name__ == "__main__":
    sys.exit(main())
