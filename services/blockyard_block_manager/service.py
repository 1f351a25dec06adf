"""The block-manager as a whole: the core and what carries messages to it, started in order and stopped in reverse.

::

    HTTP and API ─┐        ┌─ engines (connector channel)
    bus: events ◄─┤  core  ├─ offload-worker (job channel)
    lease       ◄─┘        └─ remote-tier (job channel)

Threading: one event loop.
"""

import asyncio
import importlib.metadata
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from blockyard.core.clock import BootClock
from blockyard.core.errors import FencedError
from blockyard.core.job_table import JobLimits
from blockyard.core.name_lease import LeaseState
from blockyard.core.outbox import Outbox
from blockyard.core.vocabulary import EventSeq, WorkerRole
from blockyard.runtime.bus import Bus
from blockyard.runtime.bus_values import StreamSpec
from blockyard.runtime.lease import InstanceLease, list_instances
from blockyard.runtime.logs import get_logger
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.process_life import is_over
from blockyard.runtime.supervisor import ServiceContext
from blockyard.wire.event_codec import encode_event
from blockyard.wire.events import InstanceRecord
from blockyard.wire.subjects import EVENT_STREAM, EVENT_SUBJECTS, events_of, instance_key
from blockyard_block_manager.api.application import make_application
from blockyard_block_manager.api.ports import ApiPorts
from blockyard_block_manager.arena_keeper import ArenaKeeper
from blockyard_block_manager.connector_server import ConnectorServer
from blockyard_block_manager.decisions import deciding
from blockyard_block_manager.event_publisher import EventPublisher
from blockyard_block_manager.manager_metrics import ManagerMetrics
from blockyard_block_manager.manager_spans import ManagerSpans
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.offload_life import OffloadLife
from blockyard_block_manager.rank_requests import RankRequests
from blockyard_block_manager.readiness import Readiness
from blockyard_block_manager.recovery import WorkerPhase
from blockyard_block_manager.remote_index import RemoteIndex
from blockyard_block_manager.section_waiters import SectionWaiters
from blockyard_block_manager.sweeper import sweep_cleared
from blockyard_block_manager.traced_bus import TracedBus
from blockyard_block_manager.worker_link import WorkerLink
from blockyard_block_manager.writer_processes import WriterProcesses

OUTBOX_BYTES: Final = 64 << 20
TICK_SECONDS: Final = 0.02
_GAUGE_TICKS: Final = 25
_PROBE_SECONDS: Final = 0.2
_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The parts that decide and wait."""

    core: NodeCore
    metrics: ManagerMetrics
    index: RemoteIndex
    waiters: SectionWaiters


def make_node(context: ServiceContext) -> Node:
    """The core of this life, not connected to anything."""
    settings, epoch = context.settings, context.life.epoch
    remote = context.node.service(ServiceName.REMOTE_TIER)
    profile = NodeProfile.of(settings, epoch, remote_runs=not is_over(remote, None))
    limits = JobLimits(
        resend_seconds=settings.jobs.resend_ms / 1_000,
        resend_limit=settings.jobs.resend_limit,
        unsettled_limit=settings.jobs.queue_limit,
    )
    outbox = Outbox(profile.instance, epoch, OUTBOX_BYTES, encode_event)
    spans = ManagerSpans(context.tracer)
    index = RemoteIndex(context.clock, spans)
    metrics = ManagerMetrics(context.metrics)
    core = NodeCore(profile, limits, outbox, index, context.clock, metrics, spans)
    return Node(core=core, metrics=metrics, index=index, waiters=SectionWaiters())


async def serve(context: ServiceContext) -> None:
    """Serve until asked to stop."""
    settings = context.settings
    node = make_node(context)
    core = node.core
    async with AsyncExitStack() as stack:
        stack.callback(core.close)
        bus = await stack.enter_async_context(Bus(settings.nats, f"blockyard-{core.profile.instance}"))
        ports = ApiPorts(core=core, index=node.index, list_instances=lambda: list_instances(bus, settings.nats))
        application = make_application(ports)
        http = await stack.enter_async_context(context.serve_http(settings.http.block_manager_port, application))
        readiness = Readiness(context.health, context.metrics, core)
        bus.listen(lambda state: readiness.bus_changed(state, bus.obstacle))
        lease = _lease(context, core, bus, http.advertise())
        publisher = _publisher(context, core, bus, lease)
        lease.on_change = lambda state, detail: _lease_changed(readiness, publisher, state, detail)
        stack.push_async_callback(lease.release)
        stack.push_async_callback(node.index.close)
        arena = stack.enter_context(ArenaKeeper())
        links = {
            role: WorkerLink(role, context.node.service(service).socket, core, arena)
            for role, service in _workers(settings.g4.enabled).items()
        }
        worker = links[WorkerRole.OFFLOAD_WORKER]
        processes = stack.enter_context(WriterProcesses(context.folder.path / "arena-writers"))
        slots = RankRequests(core, arena, processes)
        slots.inherit()
        engines = ConnectorServer(context.folder.socket, core, worker, node.index, node.waiters, slots)
        worker.on_attached = lambda replaced: _worker_attached(engines, slots, links, replaced)
        if WorkerRole.REMOTE_TIER in links:
            node.index.connect(links[WorkerRole.REMOTE_TIER])
        core.desk.on_work = lambda role: links[role].wake()
        core.on_section_end = _SectionEnd(node, readiness, lease)
        await stack.enter_async_context(engines)
        context.start(publisher.run(), "events")
        context.start(_hold_lease(lease), "lease")
        for role, link in links.items():
            context.start(link.run(), role.label)
        if settings.g4.enabled or core.profile.remote_runs:
            context.start(_probe_remote(context, core), "remote-probe")
        life = OffloadLife(
            core,
            worker,
            partial(is_over, context.node.service(ServiceName.OFFLOAD_WORKER)),
            context.clock,
            node.metrics,
            patience_seconds=settings.jobs.stuck_ms / 1_000,
        )
        context.start(life.run(), "offload-life")
        context.start(sweep_cleared(core, node.waiters), "sweep")
        context.start(_tick(core, links, life), "tick")
        await context.stop.wait()


async def _tick(core: NodeCore, links: dict[WorkerRole, WorkerLink], life: OffloadLife) -> None:
    ticks = 0
    while True:
        with deciding():
            actions = core.tick()
        for action in actions:
            links[action.role].act(action)
        life.look()
        if core.ranks.overdue and core.recovery.arena is not None:
            links[WorkerRole.OFFLOAD_WORKER].give_up_arena(core.recovery.arena.arena)
        if ticks % _GAUGE_TICKS == 0:
            core.update_gauges()
        ticks += 1
        await asyncio.sleep(TICK_SECONDS)


async def _probe_remote(context: ServiceContext, core: NodeCore) -> None:
    """A remote tier that does not run cannot write the arena: local tiers need not wait for it, nor do its jobs."""
    folder = context.node.service(ServiceName.REMOTE_TIER)
    while True:
        away = core.recovery.phase(WorkerRole.REMOTE_TIER) is WorkerPhase.AWAY
        if away and is_over(folder, None):
            with deciding():
                core.remote_proven_dead()
        await asyncio.sleep(_PROBE_SECONDS)


async def _hold_lease(lease: InstanceLease) -> None:
    await lease.run()
    raise FencedError("a later life of this node is known", lease=lease.state.value)


def _worker_attached(
    engines: ConnectorServer, slots: RankRequests, links: dict[WorkerRole, WorkerLink], replaced: bool
) -> None:
    if replaced:
        slots.arena_replaced()
        engines.arena_replaced()
    if replaced and WorkerRole.REMOTE_TIER in links:
        links[WorkerRole.REMOTE_TIER].reconnect()  # it maps the old arena
    engines.map_engines()


class _SectionEnd:
    """What others learn when a section of the core is over."""

    def __init__(self, node: Node, readiness: Readiness, lease: InstanceLease) -> None:
        self._node = node
        self._readiness = readiness
        self._lease = lease

    def __call__(self) -> None:
        self._node.waiters.section_ended()
        self._readiness.update()
        engines = tuple(sorted({session.engine for session in self._node.core.sessions}))
        if engines != self._lease.record.engines:
            self._lease.update(msgspec.structs.replace(self._lease.record, engines=engines))


def _workers(g4_enabled: bool) -> dict[WorkerRole, ServiceName]:
    workers = {WorkerRole.OFFLOAD_WORKER: ServiceName.OFFLOAD_WORKER}
    if g4_enabled:
        workers[WorkerRole.REMOTE_TIER] = ServiceName.REMOTE_TIER
    return workers


def _lease_changed(readiness: Readiness, publisher: EventPublisher, state: LeaseState, detail: str) -> None:
    readiness.lease_changed(state, detail)
    publisher.lease_changed()


def _publisher(context: ServiceContext, core: NodeCore, bus: Bus, lease: InstanceLease) -> EventPublisher:
    node, nats = context.settings.node, context.settings.nats
    stream = StreamSpec(name=EVENT_STREAM, subjects=(EVENT_SUBJECTS,), max_bytes=int(nats.stream_max_bytes))
    subject = events_of(node.namespace, node.name)
    traced = TracedBus(bus, context.tracer)
    outbox = core.events.outbox
    publisher = EventPublisher(outbox, traced, stream, subject, context.metrics, may_speak=lambda: lease.may_speak)

    def appended(seq: EventSeq) -> None:
        context.metrics.events_appended.inc()
        publisher.appended(seq)

    core.events.on_append = appended
    return publisher


def _lease(context: ServiceContext, core: NodeCore, bus: Bus, url: str) -> InstanceLease:
    node = context.settings.node
    record = InstanceRecord(
        instance=core.profile.instance,
        folder=context.node.identify(),
        epoch=core.profile.epoch,
        api_url=url,
        version=importlib.metadata.version("blockyard"),
    )
    key = instance_key(node.namespace, node.name)
    return InstanceLease(bus, context.settings.nats, key, record, BootClock())
