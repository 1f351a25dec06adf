"""A real engine as a test sees it: made by the driver in the engine's environment, asked over a socket.

Threading: the event loop of the test; what blocks runs in a thread. Starts are asked for in the main thread.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, Any, Final

from blockyard.cli.child_process import ChildProcess, ChildSpec
from blockyard.cli.run_folder import RunFolder
from blockyard.core.errors import ServerStartError

ROOT: Final = Path(__file__).parents[2]
PYTHON: Final = ROOT / ".venv-engines/bin/python"
_DRIVER: Final = Path(__file__).with_name("engine_driver.py")
_START_SECONDS: Final = 240.0
_ORDER_SECONDS: Final = 120.0
QUIET: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # The engine would give each rank the processors of a NUMA node of its own, and a small machine has one.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""No network, and no more threads than there is work for."""


_NOISE: Final = re.compile(r"base.py:(214|380|413)|cpu_worker.py|triton|safetensors|NUMA|vllm.py:|cpu.py:")
"""Lines that every engine here prints, about a tokenizer and a compiler that it does without."""


@dataclass(frozen=True, slots=True)
class Generated:
    """Outputs of some prompts."""

    tokens: tuple[tuple[int, ...], ...]
    cached: tuple[int, ...]
    finish: tuple[str, ...]
    seconds: float


class Engine:
    """One running engine."""

    def __init__(self, name: str, pid: int, peer: socket.socket, log_file: Path) -> None:
        """Take over a connection on which the engine has said that it is ready."""
        self.name = name
        self.pid = pid
        self._peer = peer
        self._log_file = log_file
        self._answers = peer.makefile("r")

    def wait_ready(self) -> float:
        """Wait until the engine has started; returns the seconds it took.

        Raises:
            ServerStartError: it does not start; nothing of it is left.
        """
        self._peer.settimeout(_START_SECONDS)
        try:
            return float(self._answer()["seconds"])
        except BaseException:
            self.kill()
            raise

    async def generate(
        self, prompts: Sequence[Sequence[int]], tokens: int = 24, parameters: Mapping[str, Any] | None = None
    ) -> Generated:
        """Continue prompts greedily, all at once."""
        found = await self.ask("generate", prompts=list(prompts), tokens=tokens, parameters=parameters)
        outputs = tuple(tuple(ids) for ids in found["tokens"])
        return Generated(outputs, tuple(found["cached"]), tuple(found["finish"]), found["seconds"])

    async def reset(self, *, connector: bool = False) -> None:
        """Empty the engine's own prefix cache."""
        assert (await self.ask("reset", connector=connector))["reset"], f"{self.name} holds blocks\n{self.log()}"

    async def step(self, steps: int = 1) -> None:
        """Let it go on without requests."""
        await self.ask("step", count=steps)

    async def metrics(self, prefix: str) -> dict[str, float]:
        """Its metrics whose names begin like this."""
        found: dict[str, float] = (await self.ask("metrics", prefix=prefix))["metrics"]
        return found

    async def processes(self) -> dict[int, str]:
        """Its processes by id."""
        found: dict[str, str] = (await self.ask("processes"))["processes"]
        return {int(pid): command for pid, command in found.items()}

    async def ask(self, order: str, **arguments: Any) -> dict[str, Any]:
        """Give an order and wait for the answer."""
        return await asyncio.to_thread(self.ask_now, order, **arguments)

    def ask_now(self, order: str, **arguments: Any) -> dict[str, Any]:
        """As :meth:`ask`, and nothing else goes on meanwhile."""
        self._peer.sendall(json.dumps({"order": order, **arguments}).encode() + b"\n")
        return self._answer()

    def close(self) -> None:
        """End it, in order if it can."""
        with contextlib.suppress(OSError):
            self._peer.sendall(b'{"order": "quit"}\n')
            self._peer.settimeout(10.0)
            self._answers.readline()
        self.kill()

    def kill(self) -> None:
        """SIGKILL to all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._answers.close()
        self._peer.close()

    def log(self) -> str:
        """End of what it printed."""
        lines = self._log_file.read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not _NOISE.search(line))[-6_000:]

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        found = json.loads(line) if line else {"error": "the engine ended"}
        if "error" in found:
            raise ServerStartError(f"{found['error']}\n{self.log()}", server=self.name)
        self._peer.settimeout(_ORDER_SECONDS)
        answer: dict[str, Any] = found
        return answer


class EngineMaker:
    """The process that makes engines: it has imported everything, and forks."""

    def __init__(self, folder: RunFolder) -> None:
        """Start it; importing goes on while the caller does something else."""
        self._folder = folder.folder("engines")
        self._numbers = count(1)
        command = (str(PYTHON), str(_DRIVER))
        log_file = folder.logs / "engine-maker.log"
        self._child = ChildProcess(ChildSpec("engine maker", command, log_file, QUIET, piped=True))

    def make(self, name: str, options: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Engine:
        """Start an engine; the caller waits for it with ``wait_ready``.

        Raises:
            ServerStartError: the engine cannot be imported, or does not connect.
        """
        name = f"{name}-{next(self._numbers)}"
        log_file = self._folder / f"{name}.log"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self._folder / f"{name}.sock"))
            listening.listen(1)
            listening.settimeout(_START_SECONDS)
            order = {
                "socket": str(self._folder / f"{name}.sock"),
                "log": str(log_file),
                "environment": dict(environment or {}),
                "options": dict(options),
            }
            pid = self._fork(self._child.stdin, self._child.stdout, order)
            peer, _ = listening.accept()
        return Engine(name, pid, peer, log_file)

    def close(self) -> None:
        """End it, and with it all engines that still run."""
        self._child.stdout.close()
        self._child.kill()

    def _fork(self, orders: IO[bytes], answers: IO[bytes], order: dict[str, Any]) -> int:
        orders.write(json.dumps(order).encode() + b"\n")
        line = answers.readline()
        if not line:
            raise ServerStartError(f"the engine cannot be imported\n{self._child.log_tail()}", server="engine maker")
        return int(line)
