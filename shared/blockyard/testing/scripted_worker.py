"""A data plane without data, and the block-manager's side of its job channel: for tests of the worker server.

``ScriptedExecutor`` lets everything through unless a test closes a gate or plants a failure; ``ManagerLink`` is one
connection that speaks for a block-manager. Every wait ends after ``WAIT_SECONDS``.
Threading: one event loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from blockyard.core.errors import UnsupportedOperationError
from blockyard.core.vocabulary import Epoch, Generation, ItemStatus, JobKind, Lane, Tier
from blockyard.runtime.current_trace import current_trace
from blockyard.runtime.job_executor import AttachAnswer, JobControl
from blockyard.runtime.rpc.client import RpcClient
from blockyard.testing.worker_jobs import Move, named_digest, transfer_job
from blockyard.wire import worker_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.trace_parent import NO_TRACE, TraceParent

WAIT_SECONDS: Final = 5.0
WORKER_EPOCH: Final = Epoch(50)
MANAGER_EPOCH: Final = 9
ARENA: Final = channel.ArenaInfo(arena=bytes(16), slots=8, stride_bytes=4_096, bytes=65_536)
_PAYLOAD_BYTES: Final = 4_096
_GRANTED: Final = 2
"""Generation of every destination of ``slot_job``; the headers there have the one before."""


def opened() -> asyncio.Event:
    """A gate that lets through."""
    gate = asyncio.Event()
    gate.set()
    return gate


@dataclass(slots=True)
class ScriptedExecutor:
    """``JobExecutor`` whose work waits at gates, which are open at first."""

    gate: asyncio.Event = field(default_factory=opened)
    """Where running jobs wait."""
    attach_gate: asyncio.Event = field(default_factory=opened)
    map_gate: asyncio.Event = field(default_factory=opened)
    unmap_gate: asyncio.Event = field(default_factory=opened)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever something was asked of this executor."""
    started: list[int] = field(default_factory=list)
    attaches: list[channel.Attach] = field(default_factory=list)
    arena_fd: int | None = None
    received_fds: list[int] = field(default_factory=list)
    map_requests: list[int] = field(default_factory=list)
    mapped: list[int] = field(default_factory=list)
    unmap_requests: list[int] = field(default_factory=list)
    unmapped: list[int] = field(default_factory=list)
    busy: frozenset[int] | None = None
    failure: Exception | None = None
    unmap_failure: Exception | None = None
    pending: bool = False
    controls: dict[int, JobControl] = field(default_factory=dict)
    traces: dict[int, TraceParent] = field(default_factory=dict)
    """For which trace each job was carried out."""

    async def attach(self, attach: channel.Attach, arena_fd: int | None) -> AttachAnswer:
        """Take the arena, and hand over the one of the script."""
        if arena_fd is not None:
            self.received_fds.append(arena_fd)
        self.attaches.append(attach)
        self.news.set()
        await self.attach_gate.wait()
        if self.failure is not None:
            raise self.failure
        return AttachAnswer(mover="none", arena=ARENA if self.arena_fd is not None else None, arena_fd=self.arena_fd)

    async def run(self, job: channel.Job, control: JobControl) -> Sequence[ItemStatus]:
        """Ask permission for every item, as if headers had the generation before the granted one."""
        self.started.append(job.seq)
        self.traces[job.seq] = current_trace()
        self.controls[job.seq] = control
        self.news.set()
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        if self.pending:
            control.index_is_pending()
        header = Generation(_GRANTED - 1) if job.items.dst_generation else None
        return [control.may_issue(item, header) for item in range(job.items.count)]

    async def inventory(self, tier: Tier, cursor: int, max_records: int, busy: frozenset[int]) -> channel.InventoryPage:
        """An empty page; remembers which slots were said to be busy."""
        self.busy = busy
        return channel.InventoryPage(worker_epoch=WORKER_EPOCH, tier=tier, records=b"", cursor=cursor, end=True)

    async def map_engine(self, request: channel.MapEngine, fds: Sequence[int]) -> None:
        """Keep the descriptors."""
        self.received_fds += fds
        self.map_requests.append(request.mapping)
        self.news.set()
        await self.map_gate.wait()
        if self.failure is not None:
            raise self.failure
        self.mapped.append(request.mapping)

    async def unmap_engine(self, request: channel.UnmapEngine) -> None:
        """Remember the number."""
        self.unmap_requests.append(request.mapping)
        self.news.set()
        await self.unmap_gate.wait()
        if self.unmap_failure is not None:
            raise self.unmap_failure
        self.unmapped.append(request.mapping)
        self.news.set()

    async def find(self, request: channel.Find) -> channel.Found:
        """Refused."""
        raise UnsupportedOperationError("this worker has no index")


@dataclass(slots=True)
class ManagerLink:
    """One connection that speaks for a block-manager."""

    client: RpcClient[channel.Reply, channel.JobResult]
    results: list[channel.JobResult]
    news: asyncio.Event

    @classmethod
    async def connect(cls, path: Path) -> "ManagerLink":
        """Connect; the caller closes ``client``."""
        results: list[channel.JobResult] = []
        news = asyncio.Event()

        def received(push: channel.JobResult) -> None:
            results.append(push)
            news.set()

        client: RpcClient[channel.Reply, channel.JobResult] = await RpcClient.connect(
            path, channel.Reply, channel.Push, received
        )
        return cls(client, results, news)

    async def ask(
        self, request: channel.Request, fds: Sequence[int] = (), trace: TraceParent = NO_TRACE
    ) -> channel.Reply:
        """Reply to any request."""
        return await self.client.call(request, timeout_seconds=WAIT_SECONDS, fds=fds, trace=trace)

    async def attach(self, epoch: int = MANAGER_EPOCH, instance: str = "node") -> channel.Attached:
        """Attach without an arena."""
        reply = await self.ask(attach_request(epoch, instance))
        if not isinstance(reply, channel.Attached):
            raise TypeError(f"attach was answered with {type(reply).__name__}")
        return reply

    async def submit(self, one: channel.Job, settled_below: int = 1, trace: TraceParent = NO_TRACE) -> channel.Reply:
        """Hand over a job."""
        return await self.ask(channel.Submit(job=one, settled_below=settled_below), trace=trace)

    async def result(self, count: int = 1) -> channel.JobResult:
        """The result that was pushed as number ``count``."""
        await until_news(lambda: len(self.results) >= count, self.news)
        return self.results[count - 1]

    async def ack(self, *seqs: int, epoch: int = MANAGER_EPOCH, settled_below: int = 1) -> None:
        """Acknowledge results."""
        await self.ask(channel.Ack(epoch=epoch, seqs=seqs, settled_below=settled_below))

    async def round_trip(self) -> None:
        """Return when everything sent before has at least begun: requests start in order of arrival."""
        await self.ask(channel.Inventory(tier=Tier.G2))


def attach_request(
    epoch: int = MANAGER_EPOCH, instance: str = "node", arena: channel.ArenaInfo | None = None
) -> channel.Attach:
    """Attach of this version."""
    return channel.Attach(version=PROTOCOL_VERSION, instance=instance, epoch=epoch, arena=arena)


def slot_job(
    seq: int,
    *,
    epoch: int = MANAGER_EPOCH,
    kind: JobKind = JobKind.G3_G2,
    lane: Lane = Lane.STORE,
    worker_epoch: int = WORKER_EPOCH,
    slots: Sequence[int] = (0,),
    mapping: int = 0,
) -> channel.Job:
    """A job from these slots into those of the same numbers."""
    moves = [
        Move(named_digest(f"block {slot}"), source=slot, source_mark=_GRANTED, target=slot, target_mark=_GRANTED)
        for slot in slots
    ]
    job = transfer_job(
        kind,
        moves,
        payload_bytes=_PAYLOAD_BYTES,
        seq=seq,
        epoch=epoch,
        worker_epoch=worker_epoch,
        mapping=mapping,
    )
    return msgspec.structs.replace(job, lane=lane)


def engine_mapping(number: int) -> channel.MapEngine:
    """Request to map an engine's memory; two descriptors go with it: guards, and the memory of its only rank."""
    region = channel.RegionInfo(offset_bytes=0, stride_bytes=_PAYLOAD_BYTES, page_bytes=_PAYLOAD_BYTES)
    return channel.MapEngine(
        mapping=number,
        blocks=4,
        groups=(channel.GroupLayout(group=0, pages_per_row=1),),
        ranks=(channel.RankInfo(memory_bytes=4 * _PAYLOAD_BYTES, regions=((region,),)),),
    )


async def until_news(condition: Callable[[], bool], news: asyncio.Event) -> None:
    """Wait until ``condition`` holds; ``news`` is set whenever it may have changed."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            news.clear()
            await news.wait()
