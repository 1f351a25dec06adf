"""What policies of eviction make of recorded loads: shares of the hits that are possible at all, in the real pool.

Deterministic but for the last digits of logarithms: the machine decides only how long it takes. Every cell is one
trace at one capacity under one policy; as many run at once as there are processors. Progress goes to standard error.
``eviction`` has 180 cells and takes five to ten minutes on two free processors, most of it on the trace of coding
agents; ``eviction_quick`` leaves that trace and the large capacities out and takes one to two. What is asked of TIDE is
asked of the mean of all cells, so the quick case only tells it.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import mean
from typing import Final

from bench.measure import Measure, versions
from bench.replay.belady import belady_hits
from bench.replay.replay import replay_hits
from bench.replay.trace import TRACES, load
from blockyard.core.eviction.registry import policy_factory

POLICIES: Final = ("fifo", "lru", "lineage", "lineage_fifo", "lru2", "multi_lru", "arc", "s3_fifo", "tide")
SHARES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Capacities, as shares of the different blocks of a trace."""
_QUICK_TRACES: Final = ("mooncake_conversation", "mooncake_synthetic")
_QUICK_SHARES: Final = (0.01, 0.05)
_SMALL: Final = 0.1
"""Up to here a cache is small enough for a policy to matter much."""
_LIMIT, _TIDE = "belady", "tide"
_PEERS: Final = ("lru", "lru2", "arc", "s3_fifo", "multi_lru")
_OF_LIMIT_BAR, _OF_LIMIT_STRETCH = 0.60, 0.62
_TO_BEST_BAR, _TO_BEST_STRETCH = 1.00, 1.02
_WORST_BAR, _WORST_STRETCH = 0.92, 0.97

LRU_RATES: Final = {
    "mooncake_conversation": (0.0544, 0.0801, 0.2022, 0.2882, 0.3585, 0.3785),
    "mooncake_synthetic": (0.0370, 0.0775, 0.1550, 0.2573, 0.3952, 0.6010),
    "agentic_coding_a": (0.2736, 0.5466, 0.8441, 0.9270, 0.9530, 0.9581),
}
"""Hits of LRU with the tail released first at ``SHARES``, by a simulator that shares no code; Lineage must equal it."""
_EXACT: Final = 0.0005

Cell = tuple[str, float, str]
"""Trace, share, policy."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which cells to fill."""

    traces: Sequence[str]
    shares: Sequence[float]
    asks: bool
    """Whether bars hold for what TIDE reaches here."""

    def cells(self) -> list[Cell]:
        """Every cell, the limits included; those that take longest first."""
        return [
            (trace, share, policy)
            for trace in sorted(self.traces, key=lambda name: -load(name).references)
            for policy in (*POLICIES, _LIMIT)
            for share in self.shares
        ]


def run(case: str) -> Iterator[Measure]:
    """Hits of every policy on three traces at six capacities as shares of the possible hits; 5 to 10 minutes."""
    yield from _measures(case, Plan(TRACES, SHARES, asks=True))


def run_quick(case: str) -> Iterator[Measure]:
    """The same on the traces without coding agents at two capacities; one to two minutes."""
    yield from _measures(case, Plan(_QUICK_TRACES, _QUICK_SHARES, asks=False))


def fill(cell: Cell) -> float:
    """Hits of one cell as a share of the references."""
    name, share, policy = cell
    trace = load(name)
    capacity = trace.capacity(share)
    if policy == _LIMIT:
        return belady_hits(trace, capacity) / trace.references
    return replay_hits(trace, capacity, policy_factory(policy)) / trace.references


def _measures(case: str, plan: Plan) -> Iterator[Measure]:
    rates = _fill_all(plan.cells())
    places = [(trace, share) for trace in plan.traces for share in plan.shares]
    for trace, share in places:
        limit = rates[trace, share, _LIMIT]
        for policy in POLICIES:
            rate = rates[trace, share, policy]
            yield _line(case, f"{trace}.{share:.0%}.{policy}", [rate], rate / limit, "the limit (Belady)", None, None)
    yield from _tide(case, plan, rates, places)
    for policy in ("lru", "lineage"):
        yield _exactness(case, policy, rates, places)


def _tide(case: str, plan: Plan, rates: dict[Cell, float], places: Sequence[tuple[str, float]]) -> Iterator[Measure]:
    def line(measure: str, ratios: Sequence[float], ratio: float, against: str, bar: float, stretch: float) -> Measure:
        return _line(case, measure, ratios, ratio, against, *((bar, stretch) if plan.asks else (None, None)))

    small = [(trace, share) for trace, share in places if share <= _SMALL]
    of_limit = [rates[trace, share, _TIDE] / rates[trace, share, _LIMIT] for trace, share in small]
    yield line("tide_of_limit", of_limit, mean(of_limit), "the limit (Belady)", _OF_LIMIT_BAR, _OF_LIMIT_STRETCH)
    to_best = [
        rates[trace, share, _TIDE] / max(rates[trace, share, policy] for policy in _PEERS) for trace, share in places
    ]
    peers = f"the best of {', '.join(_PEERS)} per cell"
    yield line("tide_to_best", to_best, mean(to_best), peers, _TO_BEST_BAR, _TO_BEST_STRETCH)
    yield line("tide_to_best_worst", to_best, min(to_best), peers, _WORST_BAR, _WORST_STRETCH)


def _exactness(case: str, policy: str, rates: dict[Cell, float], places: Sequence[tuple[str, float]]) -> Measure:
    wrong = [
        abs(rates[trace, share, policy] - LRU_RATES[trace][SHARES.index(share)]) > _EXACT for trace, share in places
    ]
    right = wrong.count(False) / len(wrong)
    return _line(case, f"{policy}_exact", [right], right, "the rates of an independent simulator", 1.0, None)


def _fill_all(cells: Sequence[Cell]) -> dict[Cell, float]:
    rates: dict[Cell, float] = {}
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn")) as processes:
        running = {processes.submit(fill, cell): cell for cell in cells}
        for done in as_completed(running):
            cell = running[done]
            rates[cell] = done.result()
            trace, share, policy = cell
            sys.stderr.write(f"{len(rates)}/{len(cells)} {trace} {share:.0%} {policy} {rates[cell]:.4f}\n")
            sys.stderr.flush()
    return rates


def _line(
    case: str,
    measure: str,
    rates: Sequence[float],
    ratio: float,
    against: str,
    bar: float | None,
    stretch: float | None,
) -> Measure:
    percent = [100 * rate for rate in rates]
    return Measure(
        case=case,
        measure=measure,
        value=mean(percent),
        unit="%",
        ratio=ratio,
        bar=bar,
        stretch=stretch,
        ok=bar is None or ratio >= bar,
        n=len(percent),
        spread=(min(percent), max(percent)),
        against=against,
        versions=versions(),
        load=os.getloadavg(),
    )
