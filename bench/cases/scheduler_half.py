"""How long the connector holds the scheduler's thread of a real engine, against what a step can spare.

The engine's scheduler and both halves of the connector are real, and so is the node; the model is left out. *Steps* are
those in which no request came or went, prefill and decode alike. *Requests* are charged with their arrival and their
share of the steps in which requests came or went. Wall time has the budgets, and holds what the thread waits for the
interpreter while the client's thread has it; processor time (*cpu*) leaves that out. The thread has a core to itself,
where the machine has two.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.engine.child import EngineChild
from bench.engine.cores import kept_off_the_scheduler_core
from bench.engine.environment import obstacle
from bench.engine.node import node_of
from bench.engine.pair import connector_config
from bench.measure import Measure, skipped, versions
from blockyard.cli.run_folder import RunFolder

_BUDGETS: Final = {"steps": 100.0, "requests": 300.0}
"""Microseconds."""
BAR: Final = 1.0
_BLOCK_TOKENS: Final = 512
_BLOCK_BYTES: Final = 128 << 10
"""32 engine blocks of 16 tokens, one layer, one head of 32: the bytes hardly matter here."""
_NODE_BLOCKS: Final = 512
_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True)
class _Load:
    """Prompts of one length."""

    name: str
    tokens: int
    at_once: int
    waves: int


_LOADS: Final = (
    _Load("4k", 4_096, 16, 6),
    _Load("32k", 32_768, 8, 3),
    _Load("128k", 131_072, 2, 4),
)


def run(case: str) -> Iterator[Measure]:
    """Microseconds of the connector per scheduler step and per request, prompts of 4k, 32k and 128k tokens."""
    reason = obstacle()
    if reason:
        for load in _LOADS:
            for kind, budget in _BUDGETS.items():
                for name in _names(kind, load):
                    yield skipped(case, name, _against(budget), reason)
        return
    with RunFolder() as folder:
        node = node_of(folder, block_bytes=_BLOCK_BYTES, block_tokens=_BLOCK_TOKENS, blocks=_NODE_BLOCKS)
        with ExitStack() as stack:
            with kept_off_the_scheduler_core():
                running = stack.enter_context(node)
            child = stack.enter_context(EngineChild("scheduler", folder.logs / "scheduler.log"))
            config = connector_config(running.engine_socket, block_tokens=_BLOCK_TOKENS)
            version = child.ask("start", folder=str(folder.path / "model"), connector=config)["version"]
            child.ask("run", prompt_tokens=4_096, at_once=4, waves=1)
            for load in _LOADS:
                rounds = [
                    child.ask("run", prompt_tokens=load.tokens, at_once=load.at_once, waves=load.waves)
                    for _ in range(_ROUNDS)
                ]
                for kind, budget in _BUDGETS.items():
                    for name, (clock, share) in _names(kind, load).items():
                        samples = [np.array(taken[kind][clock]) for taken in rounds]
                        bar = BAR if clock == "wall" else None
                        yield _measure(case, name, samples, share, budget, version, bar=bar)


def _names(kind: str, load: _Load) -> dict[str, tuple[str, int]]:
    """Measures of one kind, with the clock and the percentile of each."""
    return {
        f"{kind}_p50_{load.name}": ("wall", 50),
        f"{kind}_p99_{load.name}": ("wall", 99),
        f"{kind}_cpu_p99_{load.name}": ("cpu", 99),
    }


def _measure(
    case: str,
    name: str,
    rounds: Sequence[NDArray[np.float64]],
    share: int,
    budget: float,
    version: str,
    *,
    bar: float | None,
) -> Measure:
    values = [float(np.percentile(samples, share)) for samples in rounds]
    value = float(np.percentile(np.concatenate(rounds), share))
    ratio = budget / value
    return Measure(
        case=case,
        measure=name,
        value=value,
        unit="us",
        ratio=ratio,
        bar=bar,
        ok=bar is None or ratio >= bar,
        n=sum(len(samples) for samples in rounds),
        spread=(min(values), max(values)),
        against=_against(budget),
        versions=versions() | {"vllm": version},
        load=os.getloadavg(),
    )


def _against(budget: float) -> str:
    return f"a budget of {budget:.0f} us"
