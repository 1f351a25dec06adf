"""A worker server with a scripted data plane, and connections to it."""

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from blockyard.core.job_ledger import JobLedger
from blockyard.core.vocabulary import WorkerRole
from blockyard.runtime.worker_server import WorkerServer
from blockyard.testing.clock import FakeClock
from blockyard.testing.recording_tracer import RecordingTracer
from blockyard.testing.scripted_worker import WORKER_EPOCH, ManagerLink, ScriptedExecutor
from blockyard.wire import worker_channel as channel

Connect = Callable[[], Awaitable[ManagerLink]]


@pytest.fixture
async def executor() -> AsyncIterator[ScriptedExecutor]:
    made = ScriptedExecutor()
    yield made
    for fd in made.received_fds:
        os.close(fd)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def tracer() -> RecordingTracer:
    return RecordingTracer()


@pytest.fixture
async def server(
    tmp_path: Path, executor: ScriptedExecutor, clock: FakeClock, tracer: RecordingTracer
) -> AsyncIterator[WorkerServer]:
    ledger = JobLedger[channel.Job](WORKER_EPOCH, clock, limit=4, resend_seconds=0.02)
    made = WorkerServer(
        WorkerRole.OFFLOAD_WORKER,
        ledger,
        executor,
        tmp_path / "c.sock",
        clock=clock,
        concurrency=2,
        attach_grace_seconds=0.05,
        tracer=tracer,
    )
    async with made:
        yield made
    assert tracer.open == [], "every span ends, with the server at the latest"


@pytest.fixture
async def connect(tmp_path: Path, server: WorkerServer) -> AsyncIterator[Connect]:
    async with contextlib.AsyncExitStack() as stack:

        async def one() -> ManagerLink:
            link = await ManagerLink.connect(tmp_path / "c.sock")
            stack.push_async_exit(link.client)
            return link

        yield one


@pytest.fixture
async def manager(connect: Connect) -> ManagerLink:
    made = await connect()
    await made.attach()
    return made


@pytest.fixture
def engine_fds() -> Iterator[list[int]]:
    fds = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("kv", "guard")]
    yield fds
    for fd in fds:
        os.close(fd)
