"""Checks, rebuilding of the index, and writes that wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from blockyard.core.errors import AccessDeniedError, UnavailableError
from blockyard.core.vocabulary import Availability
from blockyard.testing.blocks import chain
from blockyard.testing.rpc_peer import turns, until
from blockyard.tiers.bucket_admin import ListedObject
from blockyard.tiers.prefix_index import IndexMeta, IndexState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.unit.remote_tier.conftest import MakeNode, Node

    from blockyard.tiers.object_store import ObjectSlice

HIT, MISS = Availability.G4, Availability.MISS
RUN = chain("prompt", 8)
"""Two full packs."""
FIRST_PACK = RUN.key(3)


async def test_checks_say_what_is_missing_before_anybody_was_asked(make_node: MakeNode) -> None:
    node = make_node()
    assert {name: node.check(name) for name in ("redis", "s3", "attached")} == {
        name: (False, "not asked yet") for name in ("redis", "s3", "attached")
    }


async def test_the_bucket_is_made_where_it_is_missing(make_node: MakeNode) -> None:
    node = make_node()
    node.store.bucket_exists = False
    await node.until_ready()
    assert node.store.bucket_exists
    assert node.check("s3") == (True, "")


async def test_a_dead_store_fails_its_check_only(node: Node) -> None:
    node.store.down = UnavailableError("gone")
    assert not await node.tier.upkeep.round()
    assert node.check("s3")[0] is False
    assert node.check("redis") == (True, "")
    node.store.down = None
    node.clock.advance(10)
    assert await node.tier.upkeep.round()


async def test_a_dead_index_fails_its_check_only(node: Node) -> None:
    node.index.down = True
    assert not await node.tier.upkeep.round()
    assert node.check("redis")[0] is False
    assert node.check("s3") == (True, "")
    assert node.metrics.registry.get_sample_value("blockyard_dependency_up", {"name": "redis"}) == 0


async def test_an_index_of_another_store_is_not_used_and_left_alone(node: Node) -> None:
    await node.bench.put(RUN)
    foreign = IndexMeta(IndexState.READY, b"some other store")
    node.index.force_meta(foreign)
    assert (await node.bench.find(RUN)).availability == [Availability.UNKNOWN] * 8
    assert not await node.tier.upkeep.round()
    assert "another object store" in node.check("redis")[1]
    assert await node.index.meta() == foreign


async def test_an_index_of_another_version_is_not_used_and_left_alone(node: Node) -> None:
    node.index.force_meta(IndexMeta(IndexState.FOREIGN))
    assert not await node.tier.upkeep.round()
    assert "another version" in node.check("redis")[1]
    node.index.force_meta(IndexMeta(IndexState.FOREIGN, obstacle="delete the key {0}meta"))
    assert not await node.tier.upkeep.round()
    assert node.check("redis")[1] == "delete the key {0}meta"


async def test_two_nodes_do_not_rebuild_at_once(node: Node, make_node: MakeNode) -> None:
    marker = node.tier.opened.marker
    assert marker is not None
    node.index.force_meta(IndexMeta(IndexState.BUILDING, marker.store_id))
    assert not await node.tier.upkeep.round()
    assert "being rebuilt" in node.check("redis")[1]


async def test_losing_the_race_to_rebuild_is_no_outage_of_the_index(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def taken(*_: object) -> bool:
        return False

    node.index.lose_everything()
    monkeypatch.setattr(node.index, "begin_build", taken)
    assert not await node.tier.upkeep.round()
    assert "another process" in node.check("redis")[1]
    assert node.metrics.registry.get_sample_value("blockyard_dependency_up", {"name": "redis"}) == 1


# --- rebuilding -----------------------------------------------------------------------------------------------------
async def test_a_rebuilt_index_finds_every_pack_and_prefers_the_longer_one(node: Node) -> None:
    await node.bench.put(RUN.slice(0, 2))
    await node.bench.put(RUN)
    before = (await node.bench.find(RUN)).locators
    node.index.lose_everything()
    assert await node.tier.upkeep.round()
    assert (await node.bench.find(RUN)).locators == before


async def test_while_the_index_is_rebuilt_the_check_says_so(node: Node) -> None:
    await node.bench.put(RUN)
    node.index.lose_everything()
    node.store.gate.clear()
    rebuilding = asyncio.create_task(node.tier.upkeep.round())
    await until(lambda: node.check("redis") == (False, "the index is being rebuilt"))
    node.store.gate.set()
    assert await rebuilding
    assert node.check("redis") == (True, "")


async def test_a_rebuild_that_fails_leaves_no_request_behind(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.bench.put(RUN)
    node.index.lose_everything()
    answering, ended = node.store.get_range, list[str]()

    async def one_denied(key: str, start: int, stop: int) -> ObjectSlice:
        if key == node.bench.key(FIRST_PACK):
            raise AccessDeniedError("no")
        if key == node.bench.key(RUN.key(7)):
            await turns(100)
            ended.append(key)
        return await answering(key, start, stop)

    monkeypatch.setattr(node.store, "get_range", one_denied)
    assert not await node.tier.upkeep.round()
    assert ended == [node.bench.key(RUN.key(7))]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_rebuild_that_stops_closes_its_listing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    async def listing(prefix: str) -> AsyncGenerator[ListedObject, None]:
        try:
            while True:
                yield ListedObject(f"{prefix}none", 1)
        finally:
            closed.append(True)

    async def lost(*_: object) -> bool:
        return False

    node.index.lose_everything()
    monkeypatch.setattr(node.store, "list_objects", listing)
    monkeypatch.setattr(node.index, "renew_build", lost)
    assert not await node.tier.upkeep.round()
    assert closed == [True]


async def test_what_is_no_pack_is_left_alone(node: Node) -> None:
    await node.bench.put(RUN)
    sound = node.store.objects[node.bench.key(FIRST_PACK)]
    strangers = {
        "kv/p1/readme.txt": b"hello",
        node.bench.key(bytes(16)): sound,
        node.bench.key(chain("other", 1).key(0)): b"garbage",
        node.bench.key(chain("short", 1).key(0)): sound[:-1],
    }
    node.store.objects.update(strangers)
    node.index.lose_everything()
    assert await node.tier.upkeep.round()
    assert len(node.index) == 8
    assert strangers.items() <= node.store.objects.items()


async def test_a_rebuild_that_fails_leaves_the_index_incomplete_until_the_next_one(node: Node) -> None:
    await node.bench.put(RUN)
    node.index.lose_everything()
    node.store.fail_next(UnavailableError("gone"), 3)
    await node.tier.upkeep.round()
    assert (await node.bench.find(chain("other", 1))).availability == [Availability.UNKNOWN]
    node.clock.advance(60)
    while not await node.tier.upkeep.round():
        node.clock.advance(60)
    assert (await node.bench.find(RUN)).availability == [HIT] * 8
    assert (await node.bench.find(chain("other", 1))).availability == [MISS]


async def test_more_packs_than_a_batch_are_rebuilt(node: Node) -> None:
    runs = [chain(f"prompt {number}", 1) for number in range(70)]
    for run in runs:
        await node.bench.put(run)
    node.index.lose_everything()
    assert await node.tier.upkeep.round()
    assert len(node.index) == 70


# --- writes that wait -----------------------------------------------------------------------------------------------
async def test_waiting_writes_are_bounded_and_losses_counted(node: Node) -> None:
    node.index.down = True
    for number in range(1_030):
        await node.bench.put(chain(f"prompt {number}", 1))
    assert len(node.tier.writes) == 1_024
    sample = node.metrics.registry.get_sample_value("blockyard_dropped_total", {"reason": "index_write"})
    assert sample == 6


async def test_order_of_writes_is_kept_while_some_wait(node: Node) -> None:
    await node.bench.put(RUN)
    locators = (await node.bench.find(RUN)).locators
    node.index.down = True
    node.store.flip(node.bench.key(FIRST_PACK), 5_000)
    await node.bench.run(node.bench.get_job(RUN, locators, first_slot=10))
    node.index.down = False
    node.clock.advance(10)
    assert (await node.bench.put(RUN, first_slot=20)).pending
    assert await node.tier.upkeep.round()
    assert (await node.bench.find(RUN)).availability == [HIT] * 8


# --- the log --------------------------------------------------------------------------------------------------------
async def test_a_change_of_a_check_is_one_line_and_no_change_is_none(node: Node) -> None:
    with capture_logs() as lines:
        for down in (None, UnavailableError("gone"), UnavailableError("late"), UnavailableError("gone"), None, None):
            node.store.down = down
            node.clock.advance(10)
            await node.tier.upkeep.round()
    assert [(line["event"], line["check"], line["log_level"]) for line in lines] == [
        ("check fails", "s3", "warning"),
        ("check holds", "s3", "info"),
    ]
    assert "gone" in lines[0]["reason"]


# --- the loop -------------------------------------------------------------------------------------------------------
async def test_the_loop_gets_everything_ready_and_reacts_to_a_poke(make_node: MakeNode) -> None:
    node = make_node()
    node.health.started = True
    upkeep = asyncio.create_task(node.tier.upkeep.run())
    try:
        await until(lambda: node.health.ready)
        await node.bench.attach()
        await node.bench.put(RUN)
        node.index.lose_everything()
        await node.bench.find(RUN)
        await until(lambda: len(node.index) == 8)
    finally:
        upkeep.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upkeep
