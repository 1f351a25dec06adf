"""The link to a worker over a real socket: attach, jobs, results, listing, loss and return."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.unit.block_manager.world import OW, Engine, MakeWorld, World

from blockyard.core.clock import SystemClock
from blockyard.core.errors import UnavailableError, UnsupportedOperationError
from blockyard.core.job_ledger import JobLedger
from blockyard.core.job_table import JobAction, JobVerb
from blockyard.core.vocabulary import Epoch, ItemStatus, JobSeq, Tier, WorkerRole
from blockyard.runtime.job_executor import AttachAnswer, JobControl
from blockyard.runtime.worker_server import WorkerServer
from blockyard.testing.blocks import chain
from blockyard.wire.worker_channel import (
    ArenaInfo,
    Attach,
    Find,
    Found,
    GroupLayout,
    InventoryPage,
    Job,
    MapEngine,
    RankInfo,
    RegionInfo,
    SlabInfo,
    UnmapEngine,
)
from blockyard_block_manager.arena_keeper import ArenaKeeper
from blockyard_block_manager.recovery import WorkerPhase
from blockyard_block_manager.section_waiters import SectionWaiters
from blockyard_block_manager.worker_link import PAGE_SECONDS, WorkerLink

WAIT_SECONDS = 5.0
REPEATS = 1_000
"""Of a message about 256 jobs: more than a socket holds."""
ONE_CANCEL_BYTES = 1_024


@dataclass
class Executor:
    """A data plane that agrees to everything."""

    role: WorkerRole = OW
    attaches: list[Attach] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    pages: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a page is asked for."""
    slow_pages: asyncio.Semaphore | None = None
    """Where pages wait, if anywhere."""
    arena_fd: int = field(default_factory=lambda: os.memfd_create("arena", os.MFD_CLOEXEC))

    async def attach(self, attach: Attach, arena_fd: int | None) -> AttachAnswer:
        self.attaches.append(attach)
        if arena_fd is not None:
            os.close(arena_fd)
        info = ArenaInfo(arena=bytes(16), slots=16, stride_bytes=4_096, bytes=65_536)
        slab = SlabInfo(slab=bytes(16), slots=32, stride_bytes=4_096)
        return AttachAnswer(mover="fake", arena=info, arena_fd=self.arena_fd, slabs=(slab,))

    async def run(self, job: Job, control: JobControl) -> Sequence[ItemStatus]:
        self.jobs.append(job)
        await self.gate.wait()
        return [ItemStatus.OK] * job.items.count

    async def inventory(self, tier: Tier, cursor: int, max_records: int, busy: frozenset[int]) -> InventoryPage:
        self.pages += 1
        self.asked.set()
        if self.slow_pages is not None:
            await self.slow_pages.acquire()
        return InventoryPage(worker_epoch=1, tier=tier, records=b"", cursor=cursor + 8, end=cursor >= 8)

    async def map_engine(self, request: MapEngine, fds: Sequence[int]) -> None:
        for fd in fds:
            os.close(fd)

    async def unmap_engine(self, request: UnmapEngine) -> None:
        return

    async def find(self, request: Find) -> Found:
        raise UnsupportedOperationError("no index")


@asynccontextmanager
async def served(socket: Path, executor: Executor, epoch: int) -> AsyncIterator[WorkerServer]:
    server = WorkerServer(
        executor.role, JobLedger[Job](Epoch(epoch), SystemClock()), executor, socket, clock=SystemClock()
    )
    async with server:
        yield server


def open_arenas() -> int:
    """Descriptors of arenas in this process."""
    targets = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum("memfd:arena" in target for target in targets)


@dataclass
class LoopTime:
    """Time of the event loop, which a test can advance: what is due by then is due at once."""

    loop: asyncio.AbstractEventLoop
    ahead_seconds: float = 0.0

    def time(self) -> float:
        return time.monotonic() + self.ahead_seconds

    async def advance(self, seconds: float) -> None:
        """Go on ``seconds`` later, when everything that is due by then has happened."""
        self.ahead_seconds += seconds
        passed = self.loop.create_future()
        self.loop.call_later(0, passed.set_result, None)
        await passed


@pytest.fixture
async def loop_time(monkeypatch: pytest.MonkeyPatch) -> LoopTime:
    loop_time = LoopTime(asyncio.get_running_loop())
    monkeypatch.setattr(loop_time.loop, "time", loop_time.time)
    return loop_time


@dataclass
class Setting:
    world: World
    link: WorkerLink
    waiters: SectionWaiters
    socket: Path

    async def until_ready(self) -> None:
        await self.until(WorkerPhase.READY)

    async def mapped_engine(self, executor: Executor) -> Engine:
        """An engine whose memory the worker has mapped."""
        engine = self.world.connect("one")
        number = engine.session.mapping_number
        assert number is not None
        layout = GroupLayout(group=0, pages_per_row=1)
        region = RegionInfo(offset_bytes=0, stride_bytes=4_096, page_bytes=4_096)
        rank = RankInfo(memory_bytes=64 * 4_096, regions=((region,),))
        message = MapEngine(mapping=number, blocks=64, groups=(layout,), ranks=(rank,))
        await self.link.map_engine(message, (executor.arena_fd, executor.arena_fd))
        self.world.core.mapped(engine.session, number)
        return engine

    async def until(self, phase: WorkerPhase) -> None:
        recovery = self.world.core.recovery
        await asyncio.wait_for(self.waiters.until(lambda: recovery.phase(OW) is phase), WAIT_SECONDS)


@pytest.fixture
async def setting(make_world: MakeWorld, tmp_path: Path) -> AsyncIterator[Setting]:
    world: World = make_world(g4=False)
    waiters = SectionWaiters()
    world.core.on_section_end = waiters.section_ended
    with ArenaKeeper() as arena:
        link = WorkerLink(OW, tmp_path / "s", world.core, arena)
        world.core.desk.on_work = lambda role: link.wake()
        task = asyncio.create_task(link.run())
        yield Setting(world, link, waiters, tmp_path / "s")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_worker_is_attached_and_listed_page_by_page(setting: Setting) -> None:
    executor = Executor()
    async with served(setting.socket, executor, 5):
        await setting.until_ready()
        assert executor.attaches[0].arena is None
        assert executor.pages == 4
        assert setting.link.attached
    os.close(executor.arena_fd)


async def test_pages_that_come_slowly_are_waited_for_and_none_is_asked_for_twice(
    setting: Setting, loop_time: LoopTime
) -> None:
    """A listing that is given up begins anew: on a machine that is slow enough it would never end."""
    executor = Executor(slow_pages=asyncio.Semaphore(0))
    assert executor.slow_pages is not None
    async with served(setting.socket, executor, 5):
        for _ in range(4):
            await asyncio.wait_for(executor.asked.wait(), WAIT_SECONDS)
            executor.asked.clear()
            assert setting.link.answering
            await loop_time.advance(100)
            setting.world.clock.advance(1)
            assert not setting.link.answering, "it is told that the worker does not answer"
            executor.slow_pages.release()
        await setting.until_ready()
        assert (executor.pages, len(executor.attaches)) == (4, 1)
        assert setting.link.answering
    os.close(executor.arena_fd)


async def test_a_worker_that_never_answers_for_a_page_is_attached_again(setting: Setting, loop_time: LoopTime) -> None:
    executor = Executor(slow_pages=asyncio.Semaphore(0))
    async with served(setting.socket, executor, 5):
        await asyncio.wait_for(executor.asked.wait(), WAIT_SECONDS)
        executor.slow_pages = None
        await loop_time.advance(PAGE_SECONDS)
        await setting.until_ready()
        assert len(executor.attaches) == 2
    os.close(executor.arena_fd)


async def test_jobs_go_out_and_results_come_in_and_are_forgotten(setting: Setting) -> None:
    executor = Executor()
    executor.gate.set()
    async with served(setting.socket, executor, 5):
        await setting.until_ready()
        engine = await setting.mapped_engine(executor)
        engine.compute(chain("a", 4))
        pools = setting.world.core.tables.pool
        await asyncio.wait_for(setting.waiters.until(lambda: pools(Tier.G3).inactive == 4), WAIT_SECONDS)
        assert [job.items.count for job in executor.jobs] == [4, 4]
        assert setting.world.core.desk.table.settled_below == 3
    os.close(executor.arena_fd)


async def test_a_worker_that_goes_is_known_as_away_and_comes_back_with_the_arena(setting: Setting) -> None:
    executor = Executor()
    async with served(setting.socket, executor, 5):
        await setting.until_ready()
    await setting.until(WorkerPhase.AWAY)
    with pytest.raises(UnavailableError):
        await setting.link.unmap_engine(UnmapEngine(mapping=1))
    async with served(setting.socket, executor, 6):
        await setting.until_ready()
        arena = executor.attaches[1].arena
        assert arena is not None
        assert arena.slots == 16
    os.close(executor.arena_fd)


async def test_a_job_under_way_over_a_reconnect_settles_once(setting: Setting) -> None:
    executor = Executor()
    async with served(setting.socket, executor, 5):
        await setting.until_ready()
        engine = await setting.mapped_engine(executor)
        engine.compute(chain("a", 4))
        while not executor.jobs:
            await asyncio.sleep(0)
        setting.link.reconnect()
        await setting.until(WorkerPhase.AWAY)
        await setting.until_ready()
        executor.gate.set()
        pools = setting.world.core.tables.pool
        await asyncio.wait_for(setting.waiters.until(lambda: pools(Tier.G2).inactive == 4), WAIT_SECONDS)
        assert len(executor.attaches) == 2
        assert [job.seq for job in executor.jobs[:1]] == [1]
        assert setting.world.counter("dropped_total", reason="unknown_result") == 0
    os.close(executor.arena_fd)


async def test_a_worker_that_reads_nothing_is_not_told_the_same_for_ever(setting: Setting) -> None:
    """It stands still; what is due again and again would lie in our memory, and then all be read at once."""
    executor = Executor()
    async with served(setting.socket, executor, 5) as server:
        await setting.until_ready()
        assert server._session is not None
        server._session._connection.pause()
        connection = setting.link.connection
        assert connection is not None
        for _ in range(REPEATS):
            for seq in range(1, 257):
                setting.link.act(JobAction(JobVerb.CANCEL, JobSeq(seq), OW))
            while setting.link._actions:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert 0 < connection.unsent_bytes <= ONE_CANCEL_BYTES
        server._session._connection.resume()
        while connection.unsent_bytes:
            await asyncio.sleep(0)
        setting.link.act(JobAction(JobVerb.CANCEL, JobSeq(1), OW))
        before = connection.frames_received
        while connection.frames_received == before:
            await asyncio.sleep(0)
    os.close(executor.arena_fd)


async def test_descriptors_of_an_answer_that_is_refused_are_closed(setting: Setting) -> None:
    executor = Executor(role=WorkerRole.REMOTE_TIER)
    async with served(setting.socket, executor, 5):
        while len(executor.attaches) < 3:
            await asyncio.sleep(0.001)
    assert open_arenas() == 1, "the one of the executor"
    os.close(executor.arena_fd)


async def test_another_worker_on_the_socket_is_not_taken_for_ours(setting: Setting) -> None:
    executor = Executor(role=WorkerRole.REMOTE_TIER)
    async with served(setting.socket, executor, 5):
        while not executor.attaches:
            await asyncio.sleep(0)
        assert not setting.link.attached
    os.close(executor.arena_fd)
