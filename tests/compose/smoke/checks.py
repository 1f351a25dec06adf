"""What is looked at while the stack runs: each check says what it saw, or raises with what it did not.

They look at what the kernel says of the processes, at published ports, at what a user would ask.
"""

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from tests.compose.smoke.compose import Compose, own_target
from tests.compose.smoke.engine import Engine
from tests.compose.smoke.shell import SmokeError

_USER: Final = 10_001
_HTTP_SECONDS: Final = 5.0
_BACK_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.5
_WORK_SECONDS: Final = 120.0
_WRONG: Final = re.compile(r"(\d+) wrong bytes")
_NO_PIP: Final = "! python -m pip --version && ! command -v pip pip3 gcc cc make"
_COMMANDS_START: Final = (
    "for name in $(ls /opt/blockyard/bin | grep ^blockyard); do $name --help > /dev/null || exit 1; done"
)
# The root is read-only: what has no byte code is compiled again by every health check.
_COMPILED: Final = (
    'python -c "import os, sys, blockyard.runtime.health_check; '
    "files = [getattr(module, '__cached__', None) for module in sys.modules.values()]; "
    'sys.exit([file for file in files if file and not os.path.exists(file)] or 0)"'
)
# io_uring_setup(2), which the default seccomp profile of engines refuses.
_ASK_IO_URING: Final = (
    "import ctypes, errno; c = ctypes.CDLL(None, use_errno=True); "
    "done = c.syscall(425, 1, ctypes.create_string_buffer(120)); "
    "print('allowed' if done >= 0 else errno.errorcode[ctypes.get_errno()])"
)


@final
@dataclass(frozen=True, slots=True)
class Stack:
    """What checks look at."""

    engine: Engine
    compose: Compose
    services: dict[str, Any]
    """The services that run, as compose understands them."""

    @property
    def own(self) -> list[str]:
        """Services whose image is made from the Dockerfile."""
        return [name for name, service in self.services.items() if own_target(service)]

    def url(self, service: str, port: int) -> str:
        """Address of a published port."""
        for entry in self.services[service]["ports"]:
            if entry["target"] == port:
                return f"http://{entry['host_ip']}:{entry['published']}"
        raise SmokeError(f"{service} does not publish {port}")


Check = Callable[[Stack], Any]


def confined(stack: Stack) -> str:
    """No process of ours has a capability, may get one, is root, or may make every system call."""
    for name in stack.own:
        facts = stack.engine.inspect(stack.compose.id_of(name))
        status = _fields(stack.compose.run("exec", "-T", name, "cat", "/proc/1/status"))
        seen = (status["Uid"].split()[0], status["CapEff"].strip("0"), status["NoNewPrivs"], status["Seccomp"])
        _require(seen == (str(_USER), "", "1", "2"), f"{name}: user, capabilities, no-new-privileges, seccomp: {seen}")
        _require(facts["HostConfig"]["ReadonlyRootfs"], f"{name}: its root can be written")
        wanted = int(stack.services[name]["mem_limit"])
        _require(facts["HostConfig"]["Memory"] == wanted, f"{name}: its memory is not limited to {wanted}")
    return f"{len(stack.own)} containers: uid {_USER}, no capability, seccomp filter, read-only root, memory limited"


def bare_images(stack: Stack) -> str:
    """Images have neither pip nor a compiler, no command that cannot start, and byte code."""
    images = sorted({stack.services[name]["image"] for name in stack.own})
    for image in images:
        for script in (_NO_PIP, _COMMANDS_START, _COMPILED):
            stack.engine.run_script(image, script)
    return f"{len(images)} images without pip and compiler, all commands start, Python is compiled"


def endpoints(stack: Stack) -> str:
    """All HTTP routes of all services answer at their published ports."""
    asked = 0
    for name in stack.own:
        ports = [entry["target"] for entry in stack.services[name]["ports"]]
        if name.startswith("engine"):
            continue
        pages = ["/livez", "/readyz", "/startupz", "/metrics", *(["/docs"] if name.startswith("block-manager") else [])]
        for page in pages:
            status, _ = get(stack.url(name, ports[0]) + page)
            _require(status == 200, f"{name}{page} answers {status}")
            asked += 1
    return f"{asked} pages answer 200"


def closed_doors(stack: Stack) -> str:
    """Servers refuse who has no password."""
    status, _ = get(stack.url("s3", 8333) + "/blockyard?list-type=2")
    _require(status == 403, f"the object store answers {status} to everybody")
    alone = stack.compose.attempt("exec", "-T", "-e", "REDISCLI_AUTH=wrong", "valkey", "valkey-cli", "ping")
    _require("PONG" not in alone.text, "Valkey serves everybody")
    return "S3 answers 403, Valkey refuses a wrong password"


def mover(stack: Stack) -> dict[str, str]:
    """Where io_uring is refused, the offload-worker says that it moves blocks otherwise, by NIXL."""
    io_uring = stack.compose.run("exec", "-T", "offload-worker-a", "python", "-c", _ASK_IO_URING).strip()
    _, page = get(stack.url("offload-worker-a", 8802) + "/metrics")
    lines = [line for line in page.splitlines() if line.startswith("blockyard_mover_info{")]
    _require(len(lines) == 1 and lines[0].endswith(" 1.0"), f"not one mover is named: {lines}")
    chosen = lines[0].partition('mover="')[2].partition('"')[0]
    _require(io_uring != "allowed", "the seccomp profile of this engine allows io_uring: nothing to prove")
    _require(chosen == "nixl-posix-aio", f"io_uring is refused ({io_uring}), and the mover is {chosen}")
    return {"io_uring": io_uring, "mover": chosen}


def prometheus_targets(stack: Stack) -> str:
    """Prometheus scrapes every service of both nodes."""
    if "prometheus" not in stack.services:
        return "skipped: no program of Prometheus here"
    url = stack.url("prometheus", 9090) + "/api/v1/targets?state=active"

    def wrong() -> list[str]:
        targets = json.loads(get(url)[1])["data"]["activeTargets"]
        bad = [f"{target['scrapeUrl']}: {target['lastError']}" for target in targets if target["health"] != "up"]
        return bad or ([] if len(targets) > len(("a", "b")) * 3 else ["targets are missing"])

    _eventually(lambda: not wrong(), lambda: f"Prometheus cannot scrape: {wrong()}")
    rules = json.loads(get(stack.url("prometheus", 9090) + "/api/v1/rules")[1])["data"]["groups"]
    return f"all targets up, {sum(len(group['rules']) for group in rules)} rules loaded"


def restarted_after_a_crash(stack: Stack) -> str:
    """A service that dies is started again, in a new life, and the node gets whole."""
    service, port = "block-manager-a", 8801
    before = _epoch(stack, service, port)
    # Not by the engine: it does not restart what was killed through it.
    pid = stack.engine.inspect(stack.compose.id_of(service))["State"]["Pid"]
    if not Path(f"/proc/{pid}").exists():
        return "skipped: processes of this engine cannot be seen from here"
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return "skipped: only root may kill what this engine runs"

    def back() -> bool:
        return get(stack.url(service, port) + "/readyz")[0] == 200 and _epoch(stack, service, port) > before

    began = time.monotonic()
    _eventually(back, lambda: f"{service} does not come back: {get(stack.url(service, port) + '/readyz')}")
    return f"{service} killed; ready again after {time.monotonic() - began:.1f} s with a higher epoch"


def engines_at_work(stack: Stack) -> dict[str, str]:
    """Both demo engines replay by themselves, without a wrong byte, and b loads what a has stored."""

    def said(engine: str) -> str:
        lines = stack.compose.run("logs", "--no-color", "--no-log-prefix", "--tail", "20", engine).splitlines()
        return next((line for line in reversed(lines) if _WRONG.search(line)), "")

    def working() -> bool:
        lines = {engine: said(engine) for engine in ("engine-a", "engine-b")}
        for engine, line in lines.items():
            if (wrong := _WRONG.search(line)) and wrong[1] != "0":
                raise SmokeError(f"{engine}: {line}")
        return all(verified(line, "G2") > 0 for line in lines.values()) and verified(lines["engine-b"], "G4") > 0

    _eventually(working, lambda: f"the engines do not load: {said('engine-a')} / {said('engine-b')}", _WORK_SECONDS)
    return {engine: said(engine) for engine in ("engine-a", "engine-b")}


ALL: Final[Sequence[Check]] = (
    confined,
    bare_images,
    endpoints,
    closed_doors,
    mover,
    prometheus_targets,
    engines_at_work,
    restarted_after_a_crash,
)


def get(url: str) -> tuple[int, str]:
    """Status and body of a page; status 0 where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=_HTTP_SECONDS) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError as error:
        return 0, str(error)


def _epoch(stack: Stack, service: str, port: int) -> float:
    _, page = get(stack.url(service, port) + "/metrics")
    lines = [line for line in page.splitlines() if line.startswith("blockyard_epoch")]
    return float(lines[0].split()[-1]) if lines else 0.0


def _fields(text: str) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def verified(line: str, tier: str) -> int:
    """Blocks that an engine says it has loaded from a tier."""
    found = re.search(rf"\b{tier} (\d+)", line.partition("loaded and verified")[2])
    return int(found[1]) if found else 0


def _eventually(holds: Callable[[], bool], complaint: Callable[[], str], seconds: float = _BACK_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise SmokeError(complaint())
        time.sleep(_POLL_SECONDS)


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise SmokeError(complaint)
