"""Loading blocks when objects are damaged, gone or not what the index said, or when the way to them is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from blockyard.core.errors import (
    AccessDeniedError,
    BlockyardError,
    DeadlineExceededError,
    RequestError,
    UnavailableError,
)
from blockyard.core.vocabulary import Availability, Generation, IdentityDigest, ItemStatus, PackId
from blockyard.testing.blocks import chain
from blockyard.testing.remote_bench import GEOMETRY, PackControl, RemoteBench
from blockyard.tiers.g4_packs import record_offset
from blockyard.tiers.header import HEADER_BYTES, HeaderVerdict
from blockyard.tiers.index_value import Locator
from blockyard.tiers.store_marker import StoreMarker, encode_marker

if TYPE_CHECKING:
    from tests.unit.remote_tier.conftest import MakeNode, Node

OK, CORRUPT, UNKNOWN = ItemStatus.OK, ItemStatus.CORRUPT, ItemStatus.UNKNOWN
MISS, HIT = Availability.MISS, Availability.G4
RUN = chain("prompt", 8)
"""Two full packs."""
FIRST_PACK, SECOND_PACK = RUN.key(3), RUN.key(7)


def record(index: int) -> int:
    """Where a record starts in its pack."""
    return record_offset(index, GEOMETRY.stride_bytes)


# --- damage ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "offset", [pytest.param(HEADER_BYTES + 17, id="payload"), pytest.param(100, id="record header")]
)
async def test_a_flipped_byte_makes_its_block_corrupt_and_the_pack_disappear(node: Node, offset: int) -> None:
    await node.bench.put(RUN)
    node.store.flip(node.bench.key(FIRST_PACK), record(2) + offset)
    assert (await node.bench.load(RUN, first_slot=10)).status == [OK, OK, CORRUPT, OK, OK, OK, OK, OK]
    assert node.bench.holds(RUN, first_slot=10) == [True, True, False, True, True, True, True, True]
    assert node.bench.arena.read(12).verdict in (HeaderVerdict.WRITING, HeaderVerdict.EMPTY)
    assert (node.checksum_failures("g4"), node.checksum_checks("g4")) == (1, 8)
    assert (await node.bench.find(RUN)).availability == [MISS] * 4 + [HIT] * 4


async def test_all_blocks_of_a_damaged_pack_disappear_also_those_not_asked_for(node: Node, make_node: MakeNode) -> None:
    await node.bench.put(RUN)
    node.store.flip(node.bench.key(FIRST_PACK), record(0) + HEADER_BYTES)
    other = make_node(node.store, node.index)
    await other.until_ready()
    assert (await other.bench.load(RUN.slice(0, 1))).status == [CORRUPT]
    assert (await node.bench.find(RUN)).availability == [MISS] * 4 + [HIT] * 4


async def test_damage_on_the_way_is_cured_by_a_second_reading(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.bench.put(RUN)
    key = node.bench.key(FIRST_PACK)
    node.store.flip(key, record(2) + HEADER_BYTES + 17)
    honest = node.store.get_range

    async def heal_after_first(name: str, start: int, stop: int) -> object:
        found = await honest(name, start, stop)
        if name == key:
            monkeypatch.setattr(node.store, "get_range", honest)
            node.store.flip(key, record(2) + HEADER_BYTES + 17)
        return found

    monkeypatch.setattr(node.store, "get_range", heal_after_first)
    assert (await node.bench.load(RUN, first_slot=10)).all_ok
    assert node.bench.holds(RUN, first_slot=10) == [True] * 8
    assert (node.checksum_failures("g4"), node.checksum_checks("g4")) == (0, 8)


async def test_a_damaged_pack_stays_hidden_while_the_index_cannot_be_written(node: Node) -> None:
    await node.bench.put(RUN)
    job = node.bench.get_job(RUN.slice(0, 4), (await node.bench.find(RUN.slice(0, 4))).locators, first_slot=10)
    node.store.flip(node.bench.key(FIRST_PACK), record(2) + HEADER_BYTES)
    node.index.down = True
    assert (await node.bench.run(job)).status[2] is CORRUPT
    node.index.down = False
    node.clock.advance(10)
    assert (await node.bench.find(RUN)).availability == [MISS] * 4 + [HIT] * 4
    assert await node.tier.upkeep.round()
    assert len(node.index) == 4


async def test_an_object_that_is_too_short_is_damaged(node: Node) -> None:
    await node.bench.put(RUN)
    node.store.cut(node.bench.key(FIRST_PACK), record(3) + 1_000)
    assert (await node.bench.load(RUN.slice(0, 4), first_slot=10)).status == [OK, OK, OK, CORRUPT]
    assert (node.checksum_failures("g4"), node.checksum_checks("g4")) == (1, 4)


async def test_without_verification_damaged_payload_is_served(make_node: MakeNode) -> None:
    node = make_node(skip_verification=True)
    await node.until_ready()
    await node.bench.put(RUN)
    node.store.flip(node.bench.key(FIRST_PACK), record(2) + HEADER_BYTES + 17)
    assert (await node.bench.load(RUN, first_slot=10)).all_ok
    assert node.bench.holds(RUN, first_slot=10)[2] is False


async def test_a_record_of_another_block_is_not_found_and_the_pack_stays(node: Node) -> None:
    await node.bench.put(RUN)
    wrong = [Locator(PackId(FIRST_PACK), 1, 4, GEOMETRY.stride_bytes)]
    job = node.bench.get_job(RUN.slice(0, 1), wrong, first_slot=10)
    assert (await node.bench.run(job)).status == [ItemStatus.NOT_FOUND]
    assert node.checksum_failures("g4") == 0
    assert (await node.bench.find(RUN)).availability == [MISS] + [HIT] * 7


async def test_a_pack_of_another_identity_under_the_key_is_refused(node: Node) -> None:
    other = RemoteBench(node.tier.executor, identity=IdentityDigest(bytes(32)))
    await node.bench.put(RUN)
    node.store.objects[other.key(FIRST_PACK)] = node.store.objects[node.bench.key(FIRST_PACK)]
    await other.attach()
    locators = (await node.bench.find(RUN)).locators
    answer = await other.run(other.get_job(RUN.slice(0, 1), locators[:1], first_slot=10))
    assert answer.status == [ItemStatus.IDENTITY_MISMATCH]
    other.close()


# --- gone -----------------------------------------------------------------------------------------------------------
async def test_a_missing_object_is_not_found_and_costs_one_read(node: Node) -> None:
    await node.bench.put(RUN)
    del node.store.objects[node.bench.key(FIRST_PACK)]
    assert (await node.bench.load(RUN.slice(0, 1), first_slot=10)).status == [ItemStatus.NOT_FOUND]
    assert (await node.bench.find(RUN)).availability == [MISS] * 4 + [HIT] * 4


async def test_a_denied_object_is_missing_if_the_store_is_there(node: Node) -> None:
    await node.bench.put(RUN)
    job = node.bench.get_job(RUN.slice(0, 4), (await node.bench.find(RUN.slice(0, 4))).locators, first_slot=10)
    node.store.fail_next(AccessDeniedError("no right to list"))
    assert (await node.bench.run(job)).status == [ItemStatus.NOT_FOUND] * 4


@pytest.mark.parametrize("loss", ["bucket", "marker", "another store"])
async def test_a_store_that_is_not_the_one_says_nothing_about_its_objects(node: Node, loss: str) -> None:
    await node.bench.put(RUN)
    locators = (await node.bench.find(RUN)).locators
    match loss:
        case "bucket":
            node.store.bucket_exists = False
        case "marker":
            node.store.objects.clear()
        case _:
            node.store.objects.clear()
            marker = StoreMarker(b"some other store", GEOMETRY.target_bytes)
            node.store.objects["kv/store.json"] = encode_marker(marker)
    assert (await node.bench.run(node.bench.get_job(RUN, locators, first_slot=10))).status == [UNKNOWN] * 8
    assert len(node.index) == 8


# --- no answer ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnavailableError("gone"), ItemStatus.UNKNOWN),
        (DeadlineExceededError("late"), ItemStatus.TIMEOUT),
        (AccessDeniedError("no"), ItemStatus.UNKNOWN),
    ],
)
async def test_a_dead_store_drops_nothing(node: Node, error: BlockyardError, status: ItemStatus) -> None:
    await node.bench.put(RUN)
    job = node.bench.get_job(RUN.slice(0, 4), (await node.bench.find(RUN.slice(0, 4))).locators, first_slot=10)
    node.store.down = error
    assert (await node.bench.run(job)).status == [status] * 4
    node.store.down = None
    node.clock.advance(10)
    assert await node.tier.upkeep.round()
    assert (await node.bench.find(RUN)).availability == [HIT] * 8


async def test_short_failures_are_repeated(node: Node) -> None:
    await node.bench.put(RUN)
    node.store.fail_next(UnavailableError("slow down"), 2)
    assert (await node.bench.load(RUN.slice(0, 4), first_slot=10)).all_ok


async def test_a_load_ends_at_its_deadline_and_touches_no_slot(node: Node) -> None:
    await node.bench.put(RUN)
    job = node.bench.get_job(RUN, (await node.bench.find(RUN)).locators, first_slot=10)
    node.store.gate.clear()
    answer = await node.bench.run(msgspec.structs.replace(job, ttl_ms=20))
    assert answer.status == [ItemStatus.TIMEOUT] * 8
    assert node.bench.arena.read(10).verdict is HeaderVerdict.EMPTY


# --- grants ---------------------------------------------------------------------------------------------------------
async def test_items_without_permission_leave_their_slots_untouched(node: Node) -> None:
    await node.bench.put(RUN)
    job = node.bench.get_job(RUN.slice(0, 4), (await node.bench.find(RUN.slice(0, 4))).locators, first_slot=10)
    control = PackControl(job)
    control.forbidden = {1}
    assert (await node.bench.run(job, control)).status == [OK, ItemStatus.SKIPPED, OK, OK]
    assert node.bench.arena.read(11).verdict is HeaderVerdict.EMPTY


async def test_a_slot_with_a_newer_grant_is_left_alone(node: Node) -> None:
    await node.bench.put(RUN)
    job = node.bench.get_job(RUN.slice(0, 1), (await node.bench.find(RUN.slice(0, 1))).locators, first_slot=10)
    newer = chain("newer", 1)
    node.bench.fill(newer, first_slot=10)
    assert (await node.bench.run(job)).status == [ItemStatus.SKIPPED]
    assert node.bench.holds(newer, first_slot=10) == [True]
    assert node.bench.arena.generation(10) == Generation(1)


# --- jobs that make no sense ----------------------------------------------------------------------------------------
async def test_a_record_outside_of_its_pack_is_refused(node: Node) -> None:
    await node.bench.put(RUN)
    wrong = [Locator(PackId(FIRST_PACK), 4, 4, GEOMETRY.stride_bytes)]
    with pytest.raises(RequestError):
        await node.bench.run(node.bench.get_job(RUN.slice(0, 1), wrong, first_slot=10))


async def test_a_slot_that_the_arena_does_not_have_is_refused(node: Node) -> None:
    await node.bench.put(RUN)
    job = node.bench.get_job(RUN.slice(0, 1), (await node.bench.find(RUN.slice(0, 1))).locators)
    beyond = msgspec.structs.replace(job.items, dst_index=(32).to_bytes(4, "little"))
    with pytest.raises(RequestError):
        await node.bench.run(msgspec.structs.replace(job, items=beyond))
