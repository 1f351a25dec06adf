"""Every metric with its labels, and every value a label can have, from the code.

What ``/metrics`` of a real run shows must lie within it, and what dashboards and alerts ask for.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from blockyard.core import errors
from blockyard.core.arena_writers import WriterState
from blockyard.core.jobs import Refusal
from blockyard.core.miss_reason import MissReason
from blockyard.core.name_lease import LeaseState
from blockyard.core.states import RowState
from blockyard.core.vocabulary import ItemStatus, JobKind, Lane, Tier, WorkerRole
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.telemetry import Edge, LookupOutcome, Metrics, Operation, Server
from blockyard.runtime.tracing import SpanDrop
from blockyard.tiers.open_mover import MoverSelection
from blockyard_block_manager.job_order import OrderEnd
from blockyard_block_manager.manager_metrics import DropReason, RankBlocks, StuckWorkerEnd
from blockyard_remote_tier.server_meter import GIVEN_UP

TARGET_LABELS: Final = frozenset({"job", "instance", "node", "namespace"})
"""Given by whoever scrapes."""
_ROOT: Final = Path(__file__).parents[2]


@cache
def labels_of() -> dict[str, frozenset[str]]:
    """Name of a time series, as queries write it, to its labels."""
    found: dict[str, frozenset[str]] = {}
    metrics = Metrics("test")
    attributes = [value for value in vars(metrics).values() if isinstance(value, Counter | Gauge | Histogram)]
    declared = {family.name: metric for metric in attributes for family in metric.describe()}
    for family in metrics.registry.collect():
        metric = declared.get(family.name)
        labels = frozenset(family.samples[0].labels if metric is None else metric._labelnames)
        if family.type == "histogram":
            found[f"{family.name}_bucket"] = labels | {"le"}
            found[f"{family.name}_sum"] = found[f"{family.name}_count"] = labels
        else:
            found[family.name + ("_total" if family.type == "counter" else "")] = labels
    return found | {"up": frozenset()}


@cache
def values_of() -> dict[tuple[str, str], frozenset[str]]:
    """Metric (without ending) and label to every value it can have; ``*`` is every other metric."""
    refusals = {f"{DropReason.REFUSED_JOB}_{refusal}" for refusal in Refusal}
    drops = {reason.value for reason in DropReason if reason is not DropReason.REFUSED_JOB}
    return {
        ("*", "tier"): frozenset({*(tier.label for tier in Tier), "none"}),
        ("*", "edge"): frozenset(Edge),
        ("*", "outcome"): frozenset(LookupOutcome),
        ("*", "status"): frozenset(status.name.lower() for status in ItemStatus),
        ("*", "kind"): frozenset(kind.name.lower() for kind in JobKind),
        ("*", "end"): frozenset(end.value for end in OrderEnd),
        ("*", "role"): frozenset(role.label for role in WorkerRole),
        ("*", "lane"): frozenset(lane.name.lower() for lane in Lane),
        ("*", "name"): frozenset({*Server, *(role.label for role in WorkerRole)}),
        ("*", "operation"): frozenset(Operation),
        ("*", "service"): frozenset(ServiceName),
        ("*", "check"): frozenset(_checks()),
        ("*", "mover"): frozenset({"plain", "nixl-posix-uring", "nixl-posix-aio"}),
        ("blockyard_blocks", "state"): frozenset({*(state.label for state in RowState), "registered"}),
        ("blockyard_rank_blocks", "state"): frozenset(RankBlocks),
        ("blockyard_arena_writers", "state"): frozenset(state.value for state in WriterState),
        ("blockyard_stuck_workers", "outcome"): frozenset(StuckWorkerEnd),
        ("blockyard_lease_state", "state"): frozenset(LeaseState),
        ("blockyard_dropped", "reason"): frozenset({*drops, *refusals, "index_write"}),
        ("blockyard_request_decisions", "reason"): frozenset(MissReason),
        ("blockyard_mover_info", "reason"): frozenset(MoverSelection),
        ("blockyard_spans_dropped", "reason"): frozenset(SpanDrop),
        ("blockyard_dependency_errors", "reason"): frozenset({*_error_codes(errors.BlockyardError), GIVEN_UP}),
    }


def values(metric: str, label: str) -> frozenset[str] | None:
    """Values of one label of one series; None where they are not a fixed set."""
    for ending in ("_total", "_bucket", "_count", "_sum"):
        metric = metric.removesuffix(ending)
    known = values_of()
    return known.get((metric, label), known.get(("*", label)))


def _error_codes(kind: type[errors.BlockyardError]) -> Iterator[str]:
    yield kind.code
    for child in kind.__subclasses__():
        yield from _error_codes(child)


def _checks() -> Iterator[str]:
    """First arguments of calls that set a check of readiness."""
    for path in (_ROOT / "services").rglob("*.py"):
        tree = ast.parse(path.read_text())
        constants = {
            node.target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("health.set", "._show")) and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    yield str(first.value)
                elif isinstance(first, ast.Name) and first.id in constants:
                    yield str(constants[first.id])
    yield from (Server.NATS, Server.REDIS, Server.S3)
