"""Podman in the place of a docker engine: its own storage below one folder, a socket that speaks docker's API.

Runs inside namespaces of its own (see ``isolation``), as root, without systemd. So what systemd would do is done here:
health checks are run at their intervals by a thread, for as long as the engine serves.
Invariants: everything that podman writes lies below the folder of the run, and what it needs only while it runs in
memory below ``STATE``, mounted in the namespace of the part. That path is short, however long the folder's is: podman
takes none beyond 50 characters, the kernel none of a socket beyond 107.
"""

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

from tests.compose.smoke.shell import Done, Shell, SmokeError, end_group

_CONFIGURATION: Final = """\
[containers]
default_ulimits = []
cgroups = "enabled"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
"""
STATE: Final = Path("/run/blockyard-smoke")
"""Mount point of what podman needs only while it runs; the same for all parts, for podman insists on that."""
_BUILD_SECONDS: Final = 300.0
_SOCKET_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.3
_CHECK_SECONDS: Final = 20.0
_START_INTERVAL_SECONDS: Final = 2.0
_NANOSECONDS: Final = 1_000_000_000


@final
class Podman:
    """One engine with nothing in it but what this run puts there."""

    def __init__(self, shell: Shell, folder: Path, driver: str) -> None:
        """Prepare below ``folder``, in a mount namespace of one's own.

        Args:
            shell: runs the programs.
            folder: where storage and state lie.
            driver: how layers are stored: ``overlay``, or ``vfs`` where the kernel refuses overlays.
        """
        folder.mkdir(exist_ok=True)
        STATE.mkdir(exist_ok=True)
        shell.run("mount", "-t", "tmpfs", "tmpfs", STATE)
        configuration = folder / "containers.conf"
        configuration.write_text(_CONFIGURATION.format(folder=folder))
        temporary = folder / "temporary"
        temporary.mkdir(exist_ok=True)
        self.shell = shell.with_environment(CONTAINERS_CONF=str(configuration), TMPDIR=str(temporary))
        self.socket = STATE / "engine.sock"
        self._words = (
            *("podman", "--root", str(folder / "storage"), "--runroot", str(STATE / "run")),
            *("--tmpdir", str(STATE / "tmp"), "--storage-driver", driver),
        )

    def run(self, *words: str | Path, seconds: float = 60.0, stdin: Path | None = None) -> str:
        """A podman command that has to succeed."""
        return self.shell.run(*self._words, *words, seconds=seconds, stdin=stdin)

    def attempt(self, *words: str | Path, seconds: float = 60.0) -> Done:
        """A podman command, whatever its status."""
        return self.shell.attempt(*self._words, *words, seconds=seconds)

    # --- images -------------------------------------------------------------------------------------------------------
    def import_base(self, archive: Path, image: str) -> None:
        """Make an image of one layer."""
        path = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.run("import", "--change", path, "--change", 'CMD ["python3"]', archive, image, seconds=120.0)

    def build(self, folder: Path, image: str, *, target: str = "", options: Sequence[str] = ()) -> None:
        """Build an image from a folder with a Dockerfile; only images that are here may be its base."""
        chosen = ("--target", target) if target else ()
        self.run(
            # Docker's format: the other one has no health check.
            *("build", "--format", "docker", "--isolation", "chroot", "--network", "host"),
            *("--pull-never", "--layers", "--tag", image, *chosen, *options, folder),
            seconds=_BUILD_SECONDS,
        )

    # --- containers ---------------------------------------------------------------------------------------------------
    def containers(self, *, ended: bool = False) -> list[str]:
        """Ids of those that run; of all with ``ended``."""
        return self.run("ps", "-q", "--no-trunc", *(("-a",) if ended else ())).split()

    def inspect(self, container: str) -> dict[str, Any]:
        """Everything about a container."""
        found: list[dict[str, Any]] = json.loads(self.run("inspect", container))
        return found[0]

    def run_script(self, image: str, script: str) -> None:
        """Run a script in a container of its own that has to succeed."""
        self.run("run", "--rm", "--network=none", "--entrypoint=sh", f"docker.io/{image}", "-c", script)

    def leftovers(self) -> list[str]:
        """Containers, volumes and networks that are still there."""
        volumes = self.run("volume", "ls", "-q").split()
        networks = [name for name in self.run("network", "ls", "--format", "{{.Name}}").split() if name != "podman"]
        return [*self.containers(ended=True), *volumes, *networks]

    # --- engine -------------------------------------------------------------------------------------------------------
    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve docker's API, and run health checks; yields the address."""
        service = self.shell.start(*self._words, "system", "service", "--time=0", f"unix://{self.socket}")
        stop = threading.Event()
        checks = threading.Thread(target=self._check_health, args=(stop,), daemon=True)
        try:
            self._wait_for_socket(service)
            checks.start()
            yield f"unix://{self.socket}"
        finally:
            stop.set()
            if checks.ident is not None:
                checks.join(_CHECK_SECONDS)
            end_group(service)

    def _wait_for_socket(self, service: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + _SOCKET_SECONDS
        while not self._answers():
            if service.poll() is not None or time.monotonic() > end:
                raise SmokeError("podman does not serve docker's API; see the log")
            time.sleep(_LOOK_SECONDS)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.socket)) == 0

    def _check_health(self, stop: threading.Event) -> None:
        """Run each check when it is due, until told to stop. One after the other: two cores have enough to do.

        As docker does it: at the interval of the check once it has held, and more often before that.
        """
        intervals: dict[str, float] = {}
        due: dict[str, float] = {}
        started: set[str] = set()
        while not stop.wait(_LOOK_SECONDS):
            try:
                for container in self.containers():
                    if container not in intervals:
                        intervals[container] = self._interval(container)
                    if intervals[container] and time.monotonic() >= due.get(container, 0.0) and not stop.is_set():
                        done = self.attempt("healthcheck", "run", container, seconds=_CHECK_SECONDS)
                        if done.status == 0:
                            started.add(container)
                        wait = intervals[container] if container in started else _START_INTERVAL_SECONDS
                        due[container] = time.monotonic() + wait
            except SmokeError:
                # A container that goes away meanwhile, or a check that hangs: the next look finds out.
                continue

    def _interval(self, container: str) -> float:
        """Seconds between two checks; 0 where the container has none."""
        check = self.inspect(container)["Config"].get("Healthcheck") or {}
        has_one = bool(check.get("Test")) and check["Test"] != ["NONE"]
        return float(check.get("Interval", 0)) / _NANOSECONDS if has_one else 0.0
