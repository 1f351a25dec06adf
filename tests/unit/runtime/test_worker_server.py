"""Worker side of the job channel, met by a client that speaks for a block-manager."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from blockyard.core.errors import (
    AttachedElsewhereError,
    FencedError,
    NotAttachedError,
    PeerClosedError,
    RequestError,
    TransferError,
    UnavailableError,
    UnsupportedOperationError,
    UnsupportedVersionError,
)
from blockyard.core.job_ledger import JobLedger
from blockyard.core.vocabulary import Epoch, Generation, ItemStatus, JobEnd, JobKind, Lane, Tier, WorkerRole
from blockyard.runtime.rpc.client import RpcClient
from blockyard.runtime.worker_server import AttachAnswer, JobControl, WorkerServer
from blockyard.testing.clock import FakeClock
from blockyard.wire import worker_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION

WAIT_SECONDS = 5.0
WORKER = Epoch(50)
ARENA = channel.ArenaInfo(arena=bytes(16), slots=8, stride_bytes=4_096, bytes=65_536)
Client = RpcClient[channel.Reply, channel.JobResult]


@dataclass(slots=True)
class ScriptedExecutor:
    """Data plane without data: jobs wait at a gate where one is set."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    started: list[int] = field(default_factory=list)
    attaches: list[channel.Attach] = field(default_factory=list)
    arena_fd: int | None = None
    received_fds: list[int] = field(default_factory=list)
    mapped: list[int] = field(default_factory=list)
    unmapped: list[int] = field(default_factory=list)
    busy: frozenset[int] | None = None
    failure: Exception | None = None
    pending: bool = False
    controls: dict[int, JobControl] = field(default_factory=dict)

    async def attach(self, attach: channel.Attach, arena_fd: int | None) -> AttachAnswer:
        if arena_fd is not None:
            self.received_fds.append(arena_fd)
        if self.failure is not None:
            raise self.failure
        self.attaches.append(attach)
        return AttachAnswer(mover="none", arena=ARENA if self.arena_fd is not None else None, arena_fd=self.arena_fd)

    async def run(self, job: channel.Job, control: JobControl) -> Sequence[ItemStatus]:
        self.started.append(job.seq)
        self.controls[job.seq] = control
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        if self.pending:
            control.index_is_pending()
        header = Generation(1) if job.items.dst_generation else None
        return [control.may_issue(item, header) for item in range(job.items.count)]

    async def inventory(self, tier: Tier, cursor: int, max_records: int, busy: frozenset[int]) -> channel.InventoryPage:
        self.busy = busy
        return channel.InventoryPage(worker_epoch=WORKER, tier=tier, records=b"", cursor=cursor, end=True)

    async def map_engine(self, request: channel.MapEngine, kv_fd: int, guard_fd: int) -> None:
        self.received_fds += [kv_fd, guard_fd]
        self.mapped.append(request.mapping)

    async def unmap_engine(self, request: channel.UnmapEngine) -> None:
        self.unmapped.append(request.mapping)

    async def find(self, request: channel.Find) -> channel.Found:
        raise UnsupportedOperationError("this worker has no index")


@dataclass(slots=True)
class Manager:
    """A connection that speaks for a block-manager."""

    client: Client
    results: list[channel.JobResult]
    news: asyncio.Event

    async def ask(self, request: channel.Request, fds: Sequence[int] = ()) -> channel.Reply:
        return await self.client.call(request, timeout_seconds=WAIT_SECONDS, fds=fds)

    async def attach(self, epoch: int = 9, instance: str = "node") -> channel.Attached:
        reply = await self.ask(channel.Attach(version=PROTOCOL_VERSION, instance=instance, epoch=epoch))
        assert isinstance(reply, channel.Attached)
        return reply

    async def submit(self, one: channel.Job, settled_below: int = 1) -> channel.Reply:
        return await self.ask(channel.Submit(job=one, settled_below=settled_below))

    async def result(self, count: int = 1) -> channel.JobResult:
        await until(lambda: len(self.results) >= count, self.news)
        return self.results[count - 1]

    async def ack(self, *seqs: int, epoch: int = 9, settled_below: int = 1) -> None:
        await self.ask(channel.Ack(epoch=epoch, seqs=seqs, settled_below=settled_below))


def inode(fd: int) -> int:
    return os.fstat(fd).st_ino


async def until(condition: Callable[[], bool], news: asyncio.Event) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            news.clear()
            await news.wait()


def job(
    seq: int,
    *,
    epoch: int = 9,
    kind: JobKind = JobKind.G3_G2,
    lane: Lane = Lane.STORE,
    worker_epoch: int = WORKER,
    slots: Sequence[int] = (0,),
    mapping: int = 0,
    ttl_ms: int = 10_000,
) -> channel.Job:
    count = len(slots)
    index = b"".join(slot.to_bytes(4, "little") for slot in slots)
    generation = (2).to_bytes(8, "little") * count
    return channel.Job(
        epoch=epoch,
        seq=seq,
        worker_epoch=worker_epoch,
        kind=kind,
        lane=lane,
        ttl_ms=ttl_ms,
        identity=bytes(32),
        payload_bytes=4_096,
        mapping=mapping,
        items=channel.Items(
            count=count,
            digests=bytes(32 * count),
            parents=bytes(16 * count),
            positions=bytes(4 * count),
            src_index=index,
            src_generation=generation,
            dst_index=index,
            dst_generation=generation,
        ),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


@pytest.fixture
async def executor() -> AsyncIterator[ScriptedExecutor]:
    made = ScriptedExecutor()
    made.gate.set()
    yield made
    for fd in made.received_fds:
        os.close(fd)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def server(path: Path, executor: ScriptedExecutor, clock: FakeClock) -> AsyncIterator[WorkerServer]:
    ledger = JobLedger[channel.Job](WORKER, clock, limit=4, resend_seconds=0.02)
    made = WorkerServer(
        WorkerRole.OFFLOAD_WORKER, ledger, executor, path, clock=clock, concurrency=2, attach_grace_seconds=0.05
    )
    async with made:
        yield made


Connect = Callable[[], Awaitable[Manager]]


@pytest.fixture
async def connect(path: Path, server: WorkerServer) -> AsyncIterator[Connect]:
    async with contextlib.AsyncExitStack() as stack:

        async def one() -> Manager:
            results: list[channel.JobResult] = []
            news = asyncio.Event()

            def received(push: channel.JobResult) -> None:
                results.append(push)
                news.set()

            client: Client = await RpcClient.connect(path, channel.Reply, channel.Push, received)
            stack.push_async_exit(client)
            return Manager(client, results, news)

        yield one


@pytest.fixture
async def manager(connect: Connect) -> Manager:
    made = await connect()
    await made.attach()
    return made


# --- attach -------------------------------------------------------------------------------------------------------
async def test_everything_but_attach_is_refused_before_it(connect: Connect) -> None:
    stranger = await connect()
    for request in (
        channel.Submit(job=job(1), settled_below=1),
        channel.Poll(epoch=9, seqs=(1,)),
        channel.Inventory(tier=2),
        channel.Find(identity=bytes(32), keys=b""),
    ):
        with pytest.raises(NotAttachedError):
            await stranger.ask(request)


async def test_attach_tells_who_answers_and_passes_the_arena(
    connect: Connect, executor: ScriptedExecutor, server: WorkerServer
) -> None:
    executor.arena_fd = os.memfd_create("arena", os.MFD_CLOEXEC)
    executor.received_fds.append(executor.arena_fd)
    manager = await connect()
    assert not server.attached
    request = channel.Attach(version=PROTOCOL_VERSION, instance="node", epoch=9)
    reply, fds = await manager.client.call_with_fds(request, timeout_seconds=WAIT_SECONDS)

    assert isinstance(reply, channel.Attached)
    assert (reply.role, reply.worker_epoch, reply.arena) == (WorkerRole.OFFLOAD_WORKER, WORKER, ARENA)
    assert [inode(fd) for fd in fds] == [inode(executor.arena_fd)]
    assert server.attached
    os.close(fds[0])


async def test_arena_of_an_attach_goes_to_the_executor(connect: Connect, executor: ScriptedExecutor) -> None:
    arena = os.memfd_create("arena", os.MFD_CLOEXEC)
    manager = await connect()
    await manager.ask(channel.Attach(version=PROTOCOL_VERSION, instance="node", epoch=9, arena=ARENA), [arena])

    assert inode(executor.received_fds[0]) == inode(arena)
    os.close(arena)


async def test_attach_without_sense_is_refused(connect: Connect) -> None:
    manager = await connect()
    with pytest.raises(UnsupportedVersionError):
        await manager.ask(channel.Attach(version=99, instance="node", epoch=9))
    with pytest.raises(RequestError):
        await manager.ask(channel.Attach(version=PROTOCOL_VERSION, instance="node", epoch=0))
    with pytest.raises(RequestError):
        await manager.ask(channel.Attach(version=PROTOCOL_VERSION, instance="node", epoch=9, arena=ARENA))


async def test_lower_epoch_is_fenced(connect: Connect, manager: Manager) -> None:
    with pytest.raises(FencedError):
        await (await connect()).attach(epoch=8)
    await manager.ask(channel.Inventory(tier=2))


async def test_other_instance_is_refused_until_the_served_one_is_gone(
    connect: Connect, manager: Manager, server: WorkerServer
) -> None:
    other = await connect()
    with pytest.raises(AttachedElsewhereError):
        await other.attach(epoch=10, instance="other")
    manager.client.close()
    async with asyncio.timeout(WAIT_SECONDS):
        while server.attached:
            await asyncio.sleep(0)

    assert (await other.attach(epoch=10, instance="other")).worker_epoch == WORKER


async def test_newer_life_takes_over_and_the_older_connection_ends(connect: Connect, manager: Manager) -> None:
    newer = await connect()
    await newer.attach(epoch=10)

    await asyncio.wait_for(manager.client.closed.wait(), WAIT_SECONDS)
    with pytest.raises(PeerClosedError):
        await manager.submit(job(1))


async def test_block_manager_may_take_a_higher_epoch_on_its_connection(
    manager: Manager, executor: ScriptedExecutor
) -> None:
    await manager.attach(epoch=10)

    assert await manager.submit(job(1)) == channel.Refused(reason="stale_epoch")
    assert isinstance(await manager.submit(job(1, epoch=10)), channel.Accepted)
    assert [attach.epoch for attach in executor.attaches] == [9, 10]


async def test_takeover_drops_queued_jobs_and_names_running_ones(
    connect: Connect, manager: Manager, executor: ScriptedExecutor
) -> None:
    executor.gate.clear()
    await manager.submit(job(1, slots=(3, 4)))
    await manager.submit(job(2))
    newer = await connect()
    attached = await newer.attach(epoch=10)

    (running,) = attached.running
    assert (running.epoch, running.seq, running.kind) == (9, 1, JobKind.G3_G2)
    assert running.destinations == job(1, slots=(3, 4)).items.dst_index
    assert executor.controls[1].cancelled
    executor.gate.set()
    result = await newer.result()
    assert (result.epoch, result.seq, result.end) == (9, 1, JobEnd.DONE)
    assert result.statuses() == [ItemStatus.SKIPPED] * 2
    assert executor.started == [1]


async def test_takeover_gives_running_jobs_a_moment_to_end(
    connect: Connect, manager: Manager, executor: ScriptedExecutor
) -> None:
    executor.gate.clear()
    await manager.submit(job(1))
    newer = await connect()
    async with asyncio.TaskGroup() as group:
        attaching = group.create_task(newer.attach(epoch=10))
        async with asyncio.timeout(WAIT_SECONDS):
            while not executor.controls[1].cancelled:
                await asyncio.sleep(0)
        executor.gate.set()

    assert attaching.result().running == ()
    assert newer.results == []


async def test_reconnect_keeps_jobs_and_repeats_results(
    connect: Connect, manager: Manager, executor: ScriptedExecutor
) -> None:
    await manager.submit(job(1))
    await manager.result()
    executor.gate.clear()
    await manager.submit(job(2))
    manager.client.close()
    again = await connect()

    assert (await again.attach()).running == ()
    assert (await again.result()).seq == 1
    executor.gate.set()
    await until(lambda: {result.seq for result in again.results} == {1, 2}, again.news)


async def test_failed_attach_may_be_repeated(connect: Connect, executor: ScriptedExecutor) -> None:
    manager = await connect()
    executor.failure = UnavailableError("the arena is locked")
    with pytest.raises(UnavailableError):
        await manager.attach()
    with pytest.raises(NotAttachedError):
        await manager.submit(job(1))
    executor.failure = None

    await manager.attach()
    assert isinstance(await manager.submit(job(1)), channel.Accepted)


# --- jobs ---------------------------------------------------------------------------------------------------------
async def test_job_runs_and_its_result_is_repeated_until_acknowledged(manager: Manager, clock: FakeClock) -> None:
    assert isinstance(await manager.submit(job(1, slots=(0, 1))), channel.Accepted)
    result = await manager.result()
    assert (result.epoch, result.seq, result.worker_epoch, result.end) == (9, 1, WORKER, JobEnd.DONE)
    assert result.statuses() == [ItemStatus.OK] * 2

    clock.advance(0.02)
    await manager.result(count=2)
    await manager.ack(1)
    repeated = len(manager.results)
    clock.advance(1.0)
    await manager.submit(job(2))
    await manager.result(count=repeated + 1)
    assert {result.seq for result in manager.results[repeated:]} == {2}


async def test_repeated_submit_runs_once(manager: Manager, executor: ScriptedExecutor) -> None:
    for _ in range(3):
        assert isinstance(await manager.submit(job(1)), channel.Accepted)
    await manager.result()

    assert executor.started == [1]


async def test_busy_when_the_queue_is_full(manager: Manager, executor: ScriptedExecutor) -> None:
    executor.gate.clear()
    for seq in range(1, 5):
        assert isinstance(await manager.submit(job(seq)), channel.Accepted)

    reply = await manager.submit(job(5))
    assert isinstance(reply, channel.Busy)
    assert reply.retry_ms > 0


async def test_load_does_not_wait_for_stores(manager: Manager, executor: ScriptedExecutor) -> None:
    executor.gate.clear()
    await manager.submit(job(1))
    await manager.submit(job(2))
    await manager.submit(job(3, lane=Lane.LOAD))
    await manager.ask(channel.Poll(epoch=9, seqs=(3,)))

    assert executor.started == [1, 3]
    executor.gate.set()
    await manager.result(count=3)
    assert executor.started == [1, 3, 2]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (job(1, worker_epoch=WORKER - 1), "stale_worker"),
        (job(1, epoch=8), "stale_epoch"),
        (job(1, slots=()), "bad_request"),
        (job(1, kind=JobKind.FREE), "bad_request"),
        (job(1, kind=JobKind.G1_G2, mapping=7), "no_mapping"),
        (job(1, kind=JobKind.G4_PUT), "bad_request"),
    ],
)
async def test_job_that_cannot_run_is_refused_with_its_reason(manager: Manager, one: channel.Job, reason: str) -> None:
    assert await manager.submit(one) == channel.Refused(reason=reason)


async def test_failed_executor_fails_every_item(manager: Manager, executor: ScriptedExecutor) -> None:
    executor.failure = TransferError("the disk is gone")
    await manager.submit(job(1, slots=(0, 1)))

    assert (await manager.result()).statuses() == [ItemStatus.IO_ERROR] * 2


async def test_unavailable_dependency_is_unknown_not_an_error(manager: Manager, executor: ScriptedExecutor) -> None:
    executor.failure = UnavailableError("the store is away")
    await manager.submit(job(1))

    assert (await manager.result()).statuses() == [ItemStatus.UNKNOWN]


async def test_pending_index_is_told(manager: Manager, executor: ScriptedExecutor) -> None:
    executor.pending = True
    await manager.submit(job(1))

    assert (await manager.result()).index_pending


async def test_cancelled_queued_job_ends_untouched(manager: Manager, executor: ScriptedExecutor) -> None:
    executor.gate.clear()
    await manager.submit(job(1))
    await manager.submit(job(2))
    reply = await manager.ask(channel.Cancel(epoch=9, seqs=(1, 2, 3)))

    assert isinstance(reply, channel.JobStates)
    assert [(state.seq, state.state) for state in reply.states] == [(1, "running"), (2, "ended"), (3, "unseen")]
    result = await manager.result()
    assert (result.seq, result.end, result.statuses()) == (2, JobEnd.CANCELLED, [ItemStatus.SKIPPED])
    executor.gate.set()
    assert (await manager.result(count=2)).statuses() == [ItemStatus.SKIPPED]
    assert await manager.submit(job(3)) == channel.Refused(reason="tombstone")


async def test_inventory_leaves_out_destinations_of_jobs(manager: Manager, executor: ScriptedExecutor) -> None:
    executor.gate.clear()
    await manager.submit(job(1, slots=(3, 4)))
    await manager.submit(job(2, slots=(6,), kind=JobKind.G2_G3))
    await manager.ask(channel.Inventory(tier=2))
    assert executor.busy == frozenset({3, 4})
    await manager.ask(channel.Inventory(tier=3))
    assert executor.busy == frozenset({6})
    with pytest.raises(RequestError):
        await manager.ask(channel.Inventory(tier=1))


async def test_unsupported_operation_is_told(manager: Manager) -> None:
    with pytest.raises(UnsupportedOperationError):
        await manager.ask(channel.Find(identity=bytes(32), keys=b""))


# --- engine mappings ----------------------------------------------------------------------------------------------
def mapping_of(number: int) -> channel.MapEngine:
    return channel.MapEngine(mapping=number, blocks=4, block_bytes=4_096, stride_bytes=4_096)


@pytest.fixture
async def engine_fds() -> AsyncIterator[list[int]]:
    fds = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("kv", "guard")]
    yield fds
    for fd in fds:
        os.close(fd)


async def test_mapping_is_made_once_and_needs_two_descriptors(
    manager: Manager, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    with pytest.raises(RequestError):
        await manager.ask(mapping_of(1), engine_fds[:1])
    await manager.ask(mapping_of(1), engine_fds)
    await manager.ask(mapping_of(1), engine_fds)

    assert executor.mapped == [1]
    assert isinstance(await manager.submit(job(1, kind=JobKind.G1_G2, mapping=1)), channel.Accepted)


async def test_mapping_goes_when_its_last_job_has_ended(
    manager: Manager, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    executor.gate.clear()
    await manager.ask(mapping_of(1), engine_fds)
    await manager.submit(job(1, kind=JobKind.G1_G2, mapping=1))
    async with asyncio.TaskGroup() as group:
        unmapping = group.create_task(manager.ask(channel.UnmapEngine(mapping=1)))
        await manager.ask(channel.Poll(epoch=9, seqs=(1,)))
        assert await manager.submit(job(2, kind=JobKind.G1_G2, mapping=1)) == channel.Refused(reason="no_mapping")
        assert not unmapping.done()
        assert executor.unmapped == []
        executor.gate.set()

    assert executor.unmapped == [1]
    await manager.ask(channel.UnmapEngine(mapping=1))
    assert executor.unmapped == [1]


async def test_cancel_of_queued_jobs_frees_their_mapping(
    manager: Manager, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    executor.gate.clear()
    await manager.ask(mapping_of(1), engine_fds)
    await manager.submit(job(1))
    await manager.submit(job(2, kind=JobKind.G1_G2, mapping=1))
    async with asyncio.TaskGroup() as group:
        unmapping = group.create_task(manager.ask(channel.UnmapEngine(mapping=1)))
        await manager.ask(channel.Poll(epoch=9, seqs=(1,)))
        assert not unmapping.done()
        await manager.ask(channel.Cancel(epoch=9, seqs=(2,)))

    assert executor.unmapped == [1]


async def test_mappings_of_an_older_life_end_before_their_numbers_are_used_again(
    connect: Connect, manager: Manager, executor: ScriptedExecutor, engine_fds: list[int]
) -> None:
    executor.gate.clear()
    await manager.ask(mapping_of(1), engine_fds)
    await manager.submit(job(1, kind=JobKind.G1_G2, mapping=1))
    newer = await connect()
    await newer.attach(epoch=10)
    async with asyncio.TaskGroup() as group:
        mapping = group.create_task(newer.ask(mapping_of(1), engine_fds))
        await newer.ask(channel.Poll(epoch=10, seqs=(9,)))
        assert not mapping.done()
        executor.gate.set()

    assert executor.unmapped == [1]
    assert executor.mapped == [1, 1]
