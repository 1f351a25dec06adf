"""What the proof run uses of docker compose, on processes of this machine instead of containers.

Run as a program, ``process_compose.py STATE ...``: takes the arguments of docker compose and changes the processes that
are described in the file STATE (see :class:`Described`). It knows the commands and options that the proof run uses, and
refuses all others.
Threading: none.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit


@dataclass
class Described:
    """One service."""

    command: list[str]
    environment: dict[str, str]
    log: str
    port: int = 0
    """Where it listens; 0: as its address file says."""
    address_file: str = ""
    shown_environment: dict[str, str] = field(default_factory=dict)
    """What the configuration shows of ``environment``."""
    pid: int = 0


def alive(pid: int) -> bool:
    """Whether a process runs; one that is only waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def load(state: Path) -> dict[str, Described]:
    """Services of a state file."""
    return {name: Described(**fields) for name, fields in json.loads(state.read_text()).items()}


def save(state: Path, services: dict[str, Described]) -> None:
    """Write a state file."""
    state.write_text(json.dumps({name: asdict(service) for name, service in services.items()}))


def start(services: dict[str, Described], *names: str) -> None:
    """Start services that do not run."""
    for name in names:
        service = services[name]
        if service.command and not alive(service.pid):
            Path(service.address_file or service.log).unlink(missing_ok=True)
            with open(service.log, "ab") as log:
                child = subprocess.Popen(
                    service.command,
                    env=os.environ | service.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            service.pid = child.pid


def port_of(service: Described) -> int | None:
    """Where a service listens; one that was just started needs a moment to say so."""
    deadline = time.monotonic() + 20
    while not service.port and not Path(service.address_file).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return service.port or urlsplit(json.loads(Path(service.address_file).read_text())["url"]).port


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("state", type=Path)
    parser.add_argument("--file", required=True, action="append")
    parser.add_argument("--profile", required=True, choices=["demo"])
    parser.add_argument("--project-name", default="p")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("config").add_argument("--format", required=True, choices=["json"])
    ps = commands.add_parser("ps")
    ps.add_argument("--all", required=True, action="store_true")
    ps.add_argument("--format", required=True, choices=["json"])
    port = commands.add_parser("port")
    port.add_argument("service")
    port.add_argument("port", type=int)
    kill = commands.add_parser("kill")
    kill.add_argument("--signal", required=True, choices=["KILL"])
    kill.add_argument("services", nargs="+")
    up = commands.add_parser("up")
    for flag in ("--detach", "--no-deps", "--no-recreate", "--no-build"):
        up.add_argument(flag, required=True, action="store_true")
    up.add_argument("--pull", required=True, choices=["never"])
    up.add_argument("services", nargs="+")
    execute = commands.add_parser("exec")
    execute.add_argument("-T", required=True, action="store_true")
    execute.add_argument("service")
    execute.add_argument("words", nargs=argparse.REMAINDER)
    options = parser.parse_args()

    services = load(options.state)
    if options.command == "config":
        shown = {
            name: {
                "environment": service.environment if service.shown_environment is None else service.shown_environment
            }
            for name, service in services.items()
        }
        print(json.dumps({"name": options.project_name, "services": shown}))
    elif options.command == "ps":
        for name, service in services.items():
            running = alive(service.pid)
            print(json.dumps({"Service": name, "State": "running" if running else "exited", "ExitCode": 0}))
    elif options.command == "port":
        print(f"127.0.0.1:{port_of(services[options.service])}")
    elif options.command == "kill":
        for name in options.services:
            os.killpg(services[name].pid, signal.SIGKILL)
    elif options.command == "up":
        start(services, *options.services)
        save(options.state, services)
    elif options.command == "exec":
        service = services[options.service]
        words = [sys.executable if word == "python" else word for word in options.words]
        return subprocess.run(words, env=os.environ | service.environment, check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
