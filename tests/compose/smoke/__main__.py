"""``python -m tests.compose.smoke``: start the compose stack for real, look at it, prove it, and leave nothing behind.

On a docker engine where one answers, with the images of the registries. Else on podman, which this program brings up by
itself in namespaces of its own; images then are made here from programs in wheels, and services without one are named
as skipped.

Exit codes: 0 everything held; 1 something did not; 2 wrong usage; 77 this machine cannot run it, with what is missing;
130 interrupted. The last line is one JSON object.
"""

import argparse
import json
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.compose.smoke import tools
from tests.compose.smoke.compose import Compose, free_port_variables
from tests.compose.smoke.engine import Docker, docker_answers
from tests.compose.smoke.isolation import run_inside
from tests.compose.smoke.leftovers import leftovers, remove_groups, remove_mount_point
from tests.compose.smoke.plan import Plan, left, say
from tests.compose.smoke.run_folder import RunFolder, remove_dead, run_folder, the_only_run
from tests.compose.smoke.shell import Deadline, Shell, SmokeError
from tests.compose.smoke.trial import Trial

_HELD, _FAILED, _CANNOT, _INTERRUPTED = 0, 1, 77, 130
_PARTS: Final = ("prepare", "inside")


def main() -> int:
    """Run once; returns the exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    facts: dict[str, Any] = {}
    try:
        with the_only_run():
            status = _alone(options, facts)
    except SmokeError as error:
        say(f"FAILED: {error}")
        status = _FAILED
    except KeyboardInterrupt:
        say("interrupted")
        status = _INTERRUPTED
    facts |= {"passed": status == _HELD, "seconds": round(time.monotonic() - began, 1)}
    say(json.dumps(facts))
    return status


def _alone(options: argparse.Namespace, facts: dict[str, Any]) -> int:
    for dead in remove_dead():
        say(f"removed {dead}, left by a run that was killed")
    path = None
    try:
        with run_folder() as folder:
            path = folder.path
            try:
                status = _run(options, folder, facts)
            finally:
                log = path / "smoke.log"
                if options.log is not None and log.exists():
                    shutil.copy(log, options.log)
    finally:
        if path is not None and facts.get("engine") == "podman":
            remove_groups()
            remove_mount_point()
            facts["left"] = leftovers(path)
    return status or (_FAILED if facts.get("left") else _HELD)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="compose-smoke", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=("auto", "docker", "podman"), default="auto", help="where to run (auto)")
    parser.add_argument("--install", action="store_true", help="install missing Debian packages first")
    parser.add_argument("--seconds", type=float, default=1800.0, help="give up after this long (1800)")
    parser.add_argument("--short", action="store_true", help="a smaller proof run")
    parser.add_argument("--log", type=Path, help="keep the log of all commands in this file")
    return parser.parse_args()


def _run(options: argparse.Namespace, held: RunFolder, facts: dict[str, Any]) -> int:
    folder = held.path
    plan = Plan(str(folder), _driver(), options.seconds, options.short)
    shell = Shell(folder / "smoke.log", Deadline(options.seconds))
    if options.engine == "docker" or (options.engine == "auto" and docker_answers(shell)):
        facts["engine"] = "docker"
        facts |= _on_docker(plan)
        return _HELD
    if options.install:
        tools.install(shell)
    if absent := tools.missing():
        say(f"this machine has no docker engine, and for podman it lacks: {' '.join(absent)}")
        say("as root, --install installs the packages")
        facts["missing"] = absent
        return _CANNOT
    facts["engine"] = "podman"
    plan.write()
    end = time.monotonic() + options.seconds
    for part in _PARTS:
        left_seconds = max(end - time.monotonic(), 1.0)
        module = f"tests.compose.smoke.{part}"
        own_network = part == "inside"
        status = run_inside(module, str(folder), own_network=own_network, seconds=left_seconds, held=held.lock)
        facts |= left(folder, part)
        if status != 0:
            return _FAILED
    return _HELD


def _on_docker(plan: Plan) -> dict[str, Any]:
    shell = plan.shell(own_engine=False).with_environment(**free_port_variables())
    compose = Compose(shell, plan.project, plan.path)
    say("images: building ours, pulling the others")
    compose.make_images()
    engine = Docker(shell, plan.project)
    return Trial(engine, compose, (), ("--pull", "never", "--no-build")).run(short=plan.short)


def _driver() -> str:
    """How podman can store layers here: as overlays where the kernel has them."""
    return "overlay" if "\toverlay\n" in Path("/proc/filesystems").read_text() else "vfs"


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
