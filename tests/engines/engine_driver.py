"""Real vLLM engines for the tests, in the environment of the engine; nothing of the tests is imported here.

The process imports the engine once (most of a start) and then forks: each line on stdin asks for one engine, as an
object with ``socket`` (where the test listens for it), ``log`` (what it prints goes there), ``environment`` and
``options`` (``connector`` for the fields of ``KVTransferConfig``, ``refused`` for settings of the connector that the
same process must refuse before, each by the words of its refusal, everything else for ``LLM``); its process id is the
answer. On its socket an engine says first that it is ready, then carries out orders, one JSON line each, with one line
as the answer::

    generate prompts, tokens, parameters   cached, tokens, finish: one entry per prompt
    reset connector                        reset: the prefix cache is empty now
    step count                             stepped
    metrics prefix                         metrics: name and labels -> value
    processes                              processes: ids of all of the engine -> command
    chunks                                 chunks: whether a prompt may be computed in parts
    quit                                   nothing; the engine ends

What goes wrong is answered with ``error``. An engine leads a process group of its own and dies with the process that
made it, which dies with the test.
Threading: one thread until an engine makes its own.
"""

import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import IO, Any, Final

_RESET_STEPS: Final = 400
_STEP_PAUSE_SECONDS: Final = 0.002
_PR_SET_PDEATHSIG: Final = 1
_IMPORTED: Final = (
    "vllm.entrypoints.llm",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.models.deepseek_v2",
    "vllm.model_executor.models.gemma3",
)
"""What every engine here needs."""


class Driver:
    """One engine and its orders."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Make the engine."""
        from vllm import LLM, SamplingParams
        from vllm.config import KVTransferConfig

        connector = options.pop("connector", None)
        for words, odd in options.pop("refused", {}).items():
            settings = connector["kv_connector_extra_config"] | odd
            other = KVTransferConfig(**connector | {"kv_connector_extra_config": settings})
            try:
                LLM(**options, kv_transfer_config=other)
            # Whatever the engine makes of it.
            except Exception as error:
                if words not in str(error):
                    raise
            else:
                raise RuntimeError(f"not refused: {odd}")
        transfer = {} if connector is None else {"kv_transfer_config": KVTransferConfig(**connector)}
        self._sampling = SamplingParams
        self._in_process = os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") == "0"
        self._engine = LLM(**options, **transfer)

    def generate(
        self, prompts: list[list[int]], tokens: int, parameters: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Continue prompts greedily, all at once."""
        extra = None if parameters is None else {"kv_transfer_params": parameters}
        sampling = self._sampling(temperature=0.0, max_tokens=tokens, ignore_eos=True, extra_args=extra)
        outputs = self._engine.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
        return {
            "cached": [output.num_cached_tokens for output in outputs],
            "tokens": [list(output.outputs[0].token_ids) for output in outputs],
            "finish": [output.outputs[0].finish_reason for output in outputs],
        }

    def reset(self, connector: bool = False) -> dict[str, Any]:
        """Empty the engine's prefix cache, and the connector's if asked; blocks that are still held are waited for."""
        for _ in range(_RESET_STEPS):
            if self._engine.llm_engine.reset_prefix_cache(reset_connector=connector):
                return {"reset": True}
            self.step(1)
        return {"reset": False}

    def step(self, count: int) -> dict[str, Any]:
        """Let the engine go on without requests, as a server does: ends of stores and loads arrive in its steps.

        An engine in a process of its own goes on by itself, and would wait for ever for an output here.
        """
        for _ in range(count):
            if self._in_process:
                self._engine.llm_engine.step()
            time.sleep(_STEP_PAUSE_SECONDS)
        return {"stepped": count}

    def metrics(self, prefix: str) -> dict[str, Any]:
        """Metrics of the engine whose names begin like this."""
        found = {}
        for metric in self._engine.get_metrics():
            value = getattr(metric, "value", getattr(metric, "count", None))
            if metric.name.startswith(prefix) and value is not None:
                labels = {name: text for name, text in metric.labels.items() if name not in ("engine", "model_name")}
                found[f"{metric.name}{json.dumps(labels, sort_keys=True) if labels else ''}"] = value
        return {"metrics": found}

    def chunks(self) -> dict[str, Any]:
        """Whether the engine computes a prompt in parts, as it has configured itself."""
        return {"chunks": bool(self._engine.llm_engine.vllm_config.scheduler_config.enable_chunked_prefill)}

    def close(self) -> None:
        """End the engine in order, its connector included."""
        self._engine.llm_engine.engine_core.shutdown()

    def processes(self) -> dict[str, Any]:
        """Processes of the engine, those that it started included."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(folder.name)) == os.getpgrp():
                    found[folder.name] = (folder / "comm").read_text().strip()
            except (FileNotFoundError, ProcessLookupError):
                continue
        return {"processes": found}


def serve(options: dict[str, Any], orders: IO[str], answers: IO[str]) -> None:
    """Make the engine and carry out its orders, until ``quit`` or the end of the input."""

    def answer(body: dict[str, Any]) -> None:
        answers.write(json.dumps(body) + "\n")
        answers.flush()

    def carry_out(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        start = time.monotonic()
        try:
            result: dict[str, Any] = getattr(driver, name)(**arguments)
        # What went wrong in the engine is told to the test, which decides what it means.
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}"}
        return result | {"seconds": time.monotonic() - start}

    start = time.monotonic()
    try:
        driver = Driver(options)
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        answer({"error": f"{type(error).__name__}: {error}"})
        return
    answer({"ready": True, "seconds": time.monotonic() - start})
    for line in orders:
        arguments = json.loads(line)
        name = arguments.pop("order")
        if name == "quit":
            driver.close()
            return
        answer(carry_out(name, arguments))


def become_engine(order: dict[str, Any], parent: int) -> None:
    """In the child: leave everything of the parent behind, serve, and end with all that the engine started."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    os.environ.update(order["environment"])
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(order["socket"])
        with peer.makefile("r") as orders, peer.makefile("w") as answers:
            serve(order["options"], orders, answers)


def main() -> None:
    """Import, then fork an engine per line."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Ended engines are collected by the kernel.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for name in _IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                become_engine(json.loads(line), parent)
            finally:
                # Nothing of the parent runs at the end of a child, and what the engine started goes with it.
                sys.stdout.flush()
                os.killpg(0, signal.SIGKILL)
        answers.write(f"{child}\n")
        answers.flush()


if __name__ == "__main__":
    main()
