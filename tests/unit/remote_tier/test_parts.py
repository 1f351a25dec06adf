"""Small parts of the remote tier: guarded ports, the arena in use, what is remembered of packs."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import msgspec
import pytest

from blockyard.core.errors import (
    AccessDeniedError,
    CorruptBlockError,
    ForeignFileError,
    NoSpaceError,
    NotReadyError,
    ObjectNotFoundError,
    RequestError,
    TransferError,
    UnavailableError,
    UnsupportedOperationError,
)
from blockyard.core.stored_key import stored_keys
from blockyard.core.vocabulary import GroupId, ItemStatus, JobKind, PackId, Tier
from blockyard.runtime.telemetry import Metrics, Server
from blockyard.testing.blocks import chain
from blockyard.testing.clock import FakeClock
from blockyard.testing.memory_store import MemoryStore
from blockyard.testing.remote_bench import RemoteBench
from blockyard.tiers.arena import Arena
from blockyard.tiers.breaker import Breaker
from blockyard.wire.worker_channel import Attach, MapEngine, UnmapEngine
from blockyard_remote_tier.arena_lease import ArenaLease, CopyThread
from blockyard_remote_tier.failures import status_of
from blockyard_remote_tier.guarded_store import GuardedStore
from blockyard_remote_tier.pack_register import PackRegister
from blockyard_remote_tier.server_meter import ServerMeter

if TYPE_CHECKING:
    from tests.unit.remote_tier.conftest import MakeNode, Node

    from blockyard.core.errors import BlockyardError

RUN = chain("prompt", 4)
PACK = PackId(RUN.key(3))


# --- guarded store --------------------------------------------------------------------------------------------------
@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def guarded(pauses: list[float]) -> tuple[MemoryStore, GuardedStore]:
    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    store = MemoryStore()
    return store, GuardedStore(
        store, Breaker("s3", FakeClock()), ServerMeter(Server.S3, Metrics("test"), FakeClock()), 2, sleep
    )


async def test_a_request_without_answer_is_repeated_with_pauses(
    guarded: tuple[MemoryStore, GuardedStore], pauses: list[float]
) -> None:
    store, guard = guarded
    store.fail_next(UnavailableError("slow down"), 2)
    await guard.put_if_absent("k", b"x")
    assert store.objects == {"k": b"x"}
    assert pauses == [0.05, 0.25]


@pytest.mark.parametrize("answer", [ObjectNotFoundError("no"), AccessDeniedError("no")])
async def test_an_answer_is_not_asked_again(guarded: tuple[MemoryStore, GuardedStore], answer: BlockyardError) -> None:
    store, guard = guarded
    store.fail_next(answer)
    with pytest.raises(type(answer)):
        await guard.head("k")
    assert len(store.calls) == 1


async def test_a_dead_server_is_not_asked_after_a_few_failures(guarded: tuple[MemoryStore, GuardedStore]) -> None:
    store, guard = guarded
    store.down = UnavailableError("gone")
    for _ in range(5):
        with pytest.raises(UnavailableError):
            await guard.head("k")
    assert len(store.calls) == 3


async def test_requests_in_flight_are_bounded(guarded: tuple[MemoryStore, GuardedStore]) -> None:
    store, guard = guarded
    store.gate.clear()
    requests = [asyncio.create_task(guard.put_if_absent(f"k{number}", b"x")) for number in range(5)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(store.calls) == 2
    store.gate.set()
    await asyncio.gather(*requests)
    assert len(store.objects) == 5


# --- arena and copies -----------------------------------------------------------------------------------------------
def test_a_retired_arena_is_closed_when_its_last_job_ends() -> None:
    lease = ArenaLease()
    first, second = Arena.create(1, 4_096), Arena.create(1, 4_096)
    lease.replace(first)
    with lease.borrowed() as used:
        lease.replace(second)
        assert used is first
        assert first.fd >= 0
        with lease.borrowed() as newer:
            assert newer is second
    assert first.fd < 0
    assert second.fd >= 0
    lease.close()
    assert second.fd < 0


def test_the_same_arena_again_keeps_the_mapping() -> None:
    lease = ArenaLease()
    first = Arena.create(1, 4_096)
    lease.replace(first)
    again = Arena.adopt(os.dup(first.fd))
    lease.replace(again)
    with lease.borrowed() as used:
        assert used is first
    assert again.fd < 0
    lease.close()


def test_without_an_arena_no_job_can_run() -> None:
    with pytest.raises(NotReadyError), ArenaLease().borrowed():
        pass


async def test_the_barrier_waits_for_copies_in_progress() -> None:
    copies = CopyThread()
    held, ended = threading.Event(), threading.Event()

    def step() -> None:
        held.wait(5)
        ended.set()

    running = asyncio.create_task(copies.run(step))
    barrier = asyncio.create_task(copies.barrier())
    await asyncio.sleep(0)
    held.set()
    await barrier
    assert ended.is_set()
    await running
    copies.close()


# --- what is remembered ---------------------------------------------------------------------------------------------
def test_keys_of_a_pack_are_forgotten_together() -> None:
    register = PackRegister()
    keys = stored_keys(RUN, GroupId(1))
    register.learn(PACK, keys[:2])
    register.learn(PACK, keys[1:])
    assert register.forget(PACK) == set(keys)
    assert register.forget(PACK) == set()


def test_memory_of_packs_is_bounded() -> None:
    register = PackRegister(capacity=2)
    packs = [PackId(chain(f"p{number}", 1).key(0)) for number in range(3)]
    for pack in packs:
        register.learn(pack, stored_keys([RUN.key(0)], GroupId(1)))
        register.condemn(pack)
    assert [register.is_damaged(pack) for pack in packs] == [False, True, True]
    assert [len(register.forget(pack)) for pack in packs] == [0, 1, 1]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ObjectNotFoundError(), ItemStatus.NOT_FOUND),
        (CorruptBlockError(), ItemStatus.CORRUPT),
        (NoSpaceError(), ItemStatus.NO_SPACE),
        (AccessDeniedError(), ItemStatus.UNKNOWN),
        (TransferError(), ItemStatus.IO_ERROR),
    ],
)
def test_every_failure_has_a_status(error: BlockyardError, status: ItemStatus) -> None:
    assert status_of(error) is status


# --- the executor's edges -------------------------------------------------------------------------------------------
async def test_an_attach_without_arena_is_refused(node: Node) -> None:
    with pytest.raises(RequestError):
        await node.tier.executor.attach(Attach(version=1, instance="n", epoch=1), None)


async def test_a_descriptor_that_is_no_arena_is_refused_and_closed(node: Node) -> None:
    fd = os.memfd_create("stranger")
    with pytest.raises(ForeignFileError):
        await node.tier.executor.attach(Attach(version=1, instance="n", epoch=1, arena=node.bench.arena.info()), fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


async def test_a_new_arena_is_used_from_its_attach_on(node: Node) -> None:
    await node.bench.put(RUN)
    replaced = RemoteBench(node.tier.executor)
    await replaced.attach()
    assert (await replaced.load(RUN)).all_ok
    assert replaced.holds(RUN) == [True] * 4
    replaced.close()


async def test_jobs_before_the_attach_are_not_ready(make_node: MakeNode) -> None:
    node = make_node()
    node.bench.fill(RUN)
    with pytest.raises(NotReadyError):
        await node.bench.run(node.bench.put_job(RUN))


async def test_puts_before_the_store_answered_store_nothing(make_node: MakeNode) -> None:
    node = make_node()
    await node.bench.attach()
    with pytest.raises(UnavailableError):
        await node.bench.put(RUN)
    assert node.store.objects == {}


async def test_what_the_remote_tier_does_not_do_is_refused(node: Node) -> None:
    executor = node.tier.executor
    node.bench.fill(RUN)
    with pytest.raises(UnsupportedOperationError):
        await node.bench.run(msgspec.structs.replace(node.bench.put_job(RUN), kind=JobKind.G2_G3))
    with pytest.raises(UnsupportedOperationError):
        await executor.inventory(Tier.G2, 0, 10, frozenset())
    with pytest.raises(UnsupportedOperationError):
        await executor.unmap_engine(UnmapEngine(mapping=1))
    fds = os.memfd_create("kv"), os.memfd_create("guard")
    with pytest.raises(UnsupportedOperationError):
        await executor.map_engine(MapEngine(mapping=1, blocks=1, groups=(), ranks=()), fds)
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


async def test_a_payload_that_no_slot_holds_is_refused(node: Node) -> None:
    node.bench.fill(RUN)
    with pytest.raises(RequestError):
        await node.bench.run(msgspec.structs.replace(node.bench.put_job(RUN), payload_bytes=1 << 20))
