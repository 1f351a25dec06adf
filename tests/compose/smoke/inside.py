"""Second part of a run on podman: the stack, in a network of its own.

``python -m tests.compose.smoke.inside FOLDER``.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any, Final

from tests.compose.smoke.compose import Compose, within_limits
from tests.compose.smoke.plan import Plan, leave, left, say
from tests.compose.smoke.podman import Podman
from tests.compose.smoke.shell import SmokeError
from tests.compose.smoke.trial import Trial

_PRIVATE: Final = ("/run", "/var/lib/containers")
"""Where programs leave files whatever they are told; here they are in memory and go with the namespace."""


def main() -> int:
    """Run the stack; returns the exit code."""
    plan = Plan.read(Path(sys.argv[1]))
    try:
        leave(plan.path, "inside", _run(plan))
    except SmokeError as error:
        say(f"FAILED: {error}")
        return 1
    return 0


def _run(plan: Plan) -> dict[str, Any]:
    shell = plan.shell()
    shell.run("ip", "link", "set", "lo", "up")
    for folder in _PRIVATE:
        Path(folder).mkdir(parents=True, exist_ok=True)
        shell.run("mount", "-t", "tmpfs", "tmpfs", folder)
    podman = Podman(shell, plan.path / "podman", plan.driver)
    with podman.serving() as address:
        compose = Compose(podman.shell.with_environment(DOCKER_HOST=address), plan.project, plan.path)
        limits = within_limits(compose.config(), plan.path)
        compose = dataclasses.replace(compose, files=(*compose.files, limits))
        skipped = list(left(plan.path, "prepare")["skipped"])
        trial = Trial(podman, compose, skipped, ("--pull", "never", "--no-build"))
        return trial.run(short=plan.short)


if __name__ == "__main__":
    sys.exit(main())
