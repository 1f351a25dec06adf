"""Jobs end by their deadline, whatever hangs: the store, the index, or other jobs in front of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from blockyard.core.vocabulary import Availability, ItemStatus
from blockyard.testing.blocks import chain
from blockyard.testing.remote_bench import JobAnswer, PackControl
from blockyard.testing.rpc_peer import until
from blockyard.tiers.object_store import PutOutcome

if TYPE_CHECKING:
    import pytest
    from tests.unit.remote_tier.conftest import MakeNode, Node

    from blockyard.tiers.object_store import ObjectSlice
    from blockyard.wire.worker_channel import Job

RUN = chain("prompt", 8)
"""Two full packs."""
FIRST, SECOND = RUN.slice(0, 4), RUN.slice(4, 8)
FIRST_PACK = RUN.key(3)
WAIT_SECONDS = 5.0


def short(job: Job, milliseconds: int = 20) -> Job:
    return msgspec.structs.replace(job, ttl_ms=milliseconds)


async def ends(node: Node, job: Job, control: PackControl | None = None) -> JobAnswer:
    async with asyncio.timeout(WAIT_SECONDS):
        return await node.bench.run(job, control)


async def test_a_load_does_not_outlive_its_deadline_behind_another_one(make_node: MakeNode) -> None:
    node = make_node(max_requests=1)
    await node.until_ready()
    await node.bench.put(RUN)
    locators = (await node.bench.find(RUN)).locators
    node.store.gate.clear()
    asked = len(node.store.calls)
    patient = asyncio.create_task(node.bench.run(node.bench.get_job(FIRST, locators[:4], first_slot=10)))
    await until(lambda: len(node.store.calls) > asked)
    answer = await ends(node, short(node.bench.get_job(SECOND, locators[4:], first_slot=20)))
    assert answer.status == [ItemStatus.TIMEOUT] * 4
    node.store.gate.set()
    assert (await patient).all_ok


async def test_the_time_a_job_waited_for_its_start_counts(node: Node) -> None:
    await node.bench.put(RUN)
    locators = (await node.bench.find(RUN)).locators
    node.store.gate.clear()
    load = node.bench.get_job(RUN, locators, first_slot=10)
    assert (await ends(node, load, PackControl(load, waited_seconds=9.99))).status == [ItemStatus.TIMEOUT] * 8
    node.bench.fill(chain("other", 4), first_slot=20)
    store = node.bench.put_job(chain("other", 4), first_slot=20)
    assert (await ends(node, store, PackControl(store, waited_seconds=9.99))).status == [ItemStatus.TIMEOUT] * 4


async def test_other_keys_of_a_damaged_pack_are_not_waited_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.bench.put(RUN)
    job = node.bench.get_job(FIRST, (await node.bench.find(FIRST)).locators, first_slot=10)
    node.store.flip(node.bench.key(FIRST_PACK), 5_000)
    answering = node.store.get_range

    async def silent_about_headers(key: str, start: int, stop: int) -> ObjectSlice:
        if start == 0:
            await asyncio.Event().wait()
        return await answering(key, start, stop)

    monkeypatch.setattr(node.store, "get_range", silent_about_headers)
    assert (await ends(node, short(job, 300))).status[0] is ItemStatus.CORRUPT
    assert (await node.bench.find(FIRST)).availability[0] is Availability.MISS


async def test_a_silent_index_delays_no_stored_pack(node: Node) -> None:
    node.bench.fill(RUN)
    node.index.gate.clear()
    answer = await ends(node, short(node.bench.put_job(FIRST), 300))
    assert answer.all_ok
    assert answer.pending
    node.index.gate.set()
    assert await node.tier.upkeep.round()
    assert (await node.bench.find(FIRST)).availability == [Availability.G4] * 4


async def test_a_cancelled_load_asks_for_nothing(node: Node) -> None:
    await node.bench.put(RUN)
    job = node.bench.get_job(RUN, (await node.bench.find(RUN)).locators, first_slot=10)
    asked = len(node.store.calls)
    assert (await ends(node, job, PackControl(job, cancelled=True))).status == [ItemStatus.SKIPPED] * 8
    assert len(node.store.calls) == asked


async def test_a_store_that_falls_silent_costs_one_load_its_time_and_is_unknown_until_it_answers(node: Node) -> None:
    await node.bench.put(RUN)
    locators = (await node.bench.find(RUN)).locators
    node.store.gate.clear()
    asked = len(node.store.calls)
    first = asyncio.create_task(ends(node, short(node.bench.get_job(FIRST, locators[:4], first_slot=10), 50)))
    await until(lambda: len(node.store.calls) > asked)
    node.clock.advance(1.5)
    assert (await first).status == [ItemStatus.TIMEOUT] * 4
    assert (await node.bench.find(RUN)).availability == [Availability.UNKNOWN] * 8
    asked = len(node.store.calls)
    second = await ends(node, node.bench.get_job(SECOND, locators[4:], first_slot=20))
    assert second.status == [ItemStatus.UNKNOWN] * 4
    assert len(node.store.calls) == asked, "it ended without asking"
    node.store.gate.set()
    node.clock.advance(1)
    assert (await node.bench.find(RUN)).availability == [Availability.UNKNOWN] * 8, "probing is for the upkeep"
    assert await node.tier.upkeep.round()
    assert (await node.bench.find(RUN)).availability == [Availability.G4] * 8
    assert (await ends(node, node.bench.get_job(RUN, locators, first_slot=10))).all_ok


async def test_packs_that_hang_on_their_way_to_the_store_take_no_place_of_a_load(
    make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_node(max_requests=1)
    await node.until_ready()
    await node.bench.put(FIRST)
    locators = (await node.bench.find(FIRST)).locators
    hanging = asyncio.Event()

    async def silent(key: str, body: object) -> PutOutcome:
        hanging.set()
        await asyncio.Event().wait()
        return PutOutcome.STORED

    monkeypatch.setattr(node.store, "put_if_absent", silent)
    node.bench.fill(chain("other", 4), first_slot=20)
    putting = asyncio.create_task(node.bench.run(node.bench.put_job(chain("other", 4), first_slot=20)))
    await asyncio.wait_for(hanging.wait(), WAIT_SECONDS)
    assert (await ends(node, node.bench.get_job(FIRST, locators, first_slot=10))).all_ok
    putting.cancel()
    await asyncio.gather(putting, return_exceptions=True)
