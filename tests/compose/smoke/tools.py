"""What a run without a docker engine needs of the machine, and how to get it."""

import os
import shutil
from pathlib import Path
from typing import Final

from tests.compose.smoke.shell import Shell

# Program and the Debian package that has it; some are no commands and lie where podman looks for them.
_PROGRAMS: Final = {
    "podman": "podman",
    "buildah": "buildah",
    "runc": "runc",
    "conmon": "conmon",
    "iptables": "iptables",
    "ip": "iproute2",
    "debootstrap": "debootstrap",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "/bin/busybox": "busybox-static",
}
_INSTALL_SECONDS: Final = 420.0


def missing() -> list[str]:
    """What is not here: Debian packages, and ``root`` where this process is not root."""
    absent = {package for program, package in _PROGRAMS.items() if not _present(program)}
    return [*(["root"] if os.geteuid() != 0 else []), *sorted(absent)]


def install(shell: Shell) -> None:
    """Install what is missing, by apt."""
    packages = [package for package in missing() if package != "root"]
    quiet = shell.with_environment(DEBIAN_FRONTEND="noninteractive")
    quiet.run("apt-get", "update", seconds=_INSTALL_SECONDS)
    quiet.run("apt-get", "install", "--yes", "--no-install-recommends", *packages, seconds=_INSTALL_SECONDS)


def _present(program: str) -> bool:
    return Path(program).exists() if program.startswith("/") else shutil.which(program) is not None
