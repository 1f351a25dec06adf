"""Figures per node and tier, gathered from ``/metrics`` of all services of a run.

Invariants: counters of a service that was restarted go on from where they were; a service that does not answer keeps
its last figures. Threading: one event loop.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from blockyard.cli.together import together
from blockyard.cli.venue import ServiceAddress, VenueNode
from blockyard.core.states import RowState
from blockyard.core.vocabulary import Tier
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.telemetry import PREFIX, Edge, LookupOutcome

SHOWN_TIERS: Final = (Tier.G2, Tier.G3, Tier.G4)
# Which service knows what: the same figure of two services must not be added.
_TABLE_OWNER: Final = ServiceName.BLOCK_MANAGER
_BYTE_OWNERS: Final = (ServiceName.OFFLOAD_WORKER, ServiceName.REMOTE_TIER)
EMPTY_STATES: Final = frozenset(state.label for state in (RowState.FREE, RowState.AWAIT_FREE, RowState.ABANDONED))
"""Labels of rows that hold no block."""

Sample = tuple[str, frozenset[tuple[str, str]]]
_STARTED: Final[Sample] = ("process_start_time_seconds", frozenset())


@dataclass(frozen=True, slots=True)
class TierFigures:
    """One line of the table; bytes are payload, counted since the start of the run."""

    tier: Tier
    blocks: int
    hits: int
    bytes_in: int
    bytes_out: int
    checksum_failures: int


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """One node of the table."""

    node: str
    running: bool
    tiers: tuple[TierFigures, ...]
    mover: str
    """What moves bytes between G2 and G3; empty while unknown."""
    unsettled_jobs: int
    sessions: int
    """Connected engines."""
    restarts: Mapping[ServiceName, int]
    """How often each service began another life during the run, whoever started it."""

    @property
    def checksum_failures(self) -> int:
        """Over all tiers."""
        return sum(tier.checksum_failures for tier in self.tiers)

    @property
    def moved_bytes(self) -> int:
        """Sum over all tiers and both directions; stands still when the node is idle."""
        return sum(tier.bytes_in + tier.bytes_out for tier in self.tiers)


class ServiceSamples:
    """Samples of one service over all its lives in this run."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._started: set[float] = set()
        self._now: dict[Sample, float] = {}
        self._before: Counter[Sample] = Counter()

    def update(self, text: str) -> None:
        """Take over what the service says; a process that was started at another time is another life."""
        now = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        started = now.get(_STARTED, 0.0)
        if started not in self._started:
            self._before.update({sample: value for sample, value in self._now.items() if sample[0].endswith("_total")})
            self._started.add(started)
        self._now = now

    @property
    def restarts(self) -> int:
        """Lives that were seen after the first one."""
        return max(0, len(self._started) - 1)

    def total(self, name: str, **labels: str) -> int:
        """Counter ``blockyard_<name>_total`` summed over all samples that have these labels."""
        wanted = (f"{PREFIX}_{name}_total", set(labels.items()))
        return int(_sum(self._now, *wanted) + _sum(self._before, *wanted))

    def gauge(self, name: str, *, without: frozenset[str] = frozenset(), **labels: str) -> int:
        """Gauge ``blockyard_<name>`` summed likewise, leaving out samples with a label value in ``without``."""
        kept = {sample: value for sample, value in self._now.items() if not without & {text for _, text in sample[1]}}
        return int(_sum(kept, f"{PREFIX}_{name}", set(labels.items())))

    def label(self, name: str, label: str) -> str:
        """Value of ``label`` in the sample of ``blockyard_<name>`` that is 1; empty if there is none."""
        for (found, labels), value in self._now.items():
            if found == f"{PREFIX}_{name}" and value == 1:
                return dict(labels).get(label, "")
        return ""


class NodeMetrics:
    """Reads the services of a run and adds their figures up."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        """Ask through ``http``."""
        self._http = http
        self._samples: dict[tuple[str, ServiceName], ServiceSamples] = {}

    async def read(self, nodes: tuple[VenueNode, ...]) -> tuple[NodeFigures, ...]:
        """Ask every running service once; figures of all nodes."""
        await together(*(self._scrape(address) for node in nodes for address in node.addresses()))
        return tuple(self._figures(node) for node in nodes)

    async def _scrape(self, address: ServiceAddress) -> None:
        try:
            answer = await self._http.get(f"{address.url}/metrics")
        except httpx.HTTPError:
            return
        if answer.status_code == httpx.codes.OK:
            self._of(address.node, address.service).update(answer.text)

    def _of(self, node: str, service: ServiceName) -> ServiceSamples:
        return self._samples.setdefault((node, service), ServiceSamples())

    def _figures(self, node: VenueNode) -> NodeFigures:
        manager = self._of(node.name, _TABLE_OWNER)
        return NodeFigures(
            node=node.name,
            running=node.running,
            tiers=tuple(self._tier(node.name, tier) for tier in SHOWN_TIERS),
            mover=self._of(node.name, ServiceName.OFFLOAD_WORKER).label("mover_info", "mover"),
            unsettled_jobs=manager.gauge("jobs_unsettled"),
            sessions=manager.gauge("sessions"),
            restarts={service: self._of(node.name, service).restarts for service in ServiceName},
        )

    def _tier(self, node: str, tier: Tier) -> TierFigures:
        manager = self._of(node, _TABLE_OWNER)
        workers = [self._of(node, service) for service in _BYTE_OWNERS]
        incoming = [edge for edge in Edge if edge.endswith(tier.label)]
        outgoing = [edge for edge in Edge if edge.startswith(tier.label)]
        return TierFigures(
            tier=tier,
            blocks=manager.gauge("blocks", without=EMPTY_STATES, tier=tier.label),
            hits=manager.total("lookup_blocks", tier=tier.label, outcome=LookupOutcome.HIT),
            bytes_in=sum(worker.total("moved_bytes", edge=edge) for worker in workers for edge in incoming),
            bytes_out=sum(worker.total("moved_bytes", edge=edge) for worker in workers for edge in outgoing),
            checksum_failures=sum(worker.total("checksum_failures", tier=tier.label) for worker in workers),
        )


def _sum(samples: Mapping[Sample, float], name: str, labels: set[tuple[str, str]]) -> float:
    return sum(value for (found, having), value in samples.items() if found == name and labels <= having)
