"""What ``/readyz`` says of the node: local tiers decide, the rest is named.

Local tiers serve without the bus, the index and the store; those being away makes the service not ready in the sense
that something is missing, and the check says what still works.
Threading: one event loop.
"""

from typing import Final

from blockyard.core.name_lease import LeaseState
from blockyard.core.vocabulary import WorkerRole
from blockyard.runtime.bus_values import BusState
from blockyard.runtime.http import Health
from blockyard.runtime.telemetry import Metrics, Server
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.recovery import WorkerPhase

_NO_GRANTS: Final = "nothing is stored, or loaded from below G2,"


class Readiness:
    """Keeps the checks of this service up to date."""

    def __init__(self, health: Health, metrics: Metrics, core: NodeCore) -> None:
        """Show the state of ``core``, and of what it is told."""
        self._health = health
        self._metrics = metrics
        self._core = core
        self._needed = tuple(WorkerRole) if core.profile.g4_enabled else (WorkerRole.OFFLOAD_WORKER,)
        self._bus("connecting to NATS", up=False)
        self.lease_changed(LeaseState.PENDING)
        self.update()

    def update(self) -> None:
        """Look at the core; called when a section has ended."""
        recovery, health = self._core.recovery, self._health
        phase = recovery.phase(WorkerRole.OFFLOAD_WORKER)
        details = {
            WorkerPhase.AWAY: "the offload-worker is away: G2 and G3 are unknown",
            WorkerPhase.LISTING: "the inventory of G2 and G3 is not complete",
            WorkerPhase.READY: "",
        }
        inherited = self._core.ranks.writers.inherited
        names = ", ".join(sorted({writer.process.rank.engine for writer in inherited}))
        why = f"ranks of engines may still write for an earlier life ({names}): {_NO_GRANTS} before they have attached"
        health.set("arena-writers", not inherited, why if inherited else "")
        hangs = self._hangs(WorkerRole.OFFLOAD_WORKER)
        detail = "the offload-worker does not answer: G2 and G3 are unknown" if hangs else details[phase]
        health.set("local-tiers", not detail, detail)
        if phase is WorkerPhase.READY:
            health.started = True
        if self._core.profile.g4_enabled:
            obstacle = self._remote_obstacle()
            health.set("remote-tier", not obstacle, obstacle)
        elif self._core.profile.remote_runs:
            ended = not recovery.waits_for_remote
            why = f"a remote-tier was left running, though G4 is off: {_NO_GRANTS} before it has ended"
            health.set("remote-tier", ended, "" if ended else why)
        for role in self._needed:
            up = recovery.phase(role) is not WorkerPhase.AWAY and not self._hangs(role)
            self._metrics.dependency_up.labels(role.label).set(up)

    def _remote_obstacle(self) -> str:
        attached = self._core.recovery.phase(WorkerRole.REMOTE_TIER) is WorkerPhase.READY
        waits = self._core.recovery.waits_for_remote
        if attached and waits:
            return f"the remote-tier may still write for an earlier life: {_NO_GRANTS} before that has ended"
        if attached and not self._hangs(WorkerRole.REMOTE_TIER):
            return ""
        why = f"{_NO_GRANTS} before it has attached" if waits else "G4 is unknown, local tiers go on"
        return f"the remote-tier {'does not answer' if attached else 'is away'}: {why}"

    def _hangs(self, role: WorkerRole) -> bool:
        return self._core.desk.table.silent(role)

    def bus_changed(self, state: BusState, obstacle: str) -> None:
        """The connection to NATS changed its state, or what stands in its way."""
        up = state is BusState.CONNECTED
        self._bus("" if up else f"{obstacle or 'NATS is away'}; events wait, local tiers go on", up=up)

    def lease_changed(self, state: LeaseState, detail: str = "") -> None:
        """The lease of the node's name changed its state."""
        self._health.set("node-lease", state is LeaseState.HELD, "" if state is LeaseState.HELD else detail or state)
        for possible in LeaseState:
            self._metrics.lease_state.labels(possible).set(possible is state)

    def _bus(self, detail: str, *, up: bool) -> None:
        self._health.set(Server.NATS, up, detail)
        self._metrics.dependency_up.labels(Server.NATS).set(up)
