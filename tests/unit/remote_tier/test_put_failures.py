"""Storing packs when sources, store or index do not play along."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from blockyard.core.errors import (
    AccessDeniedError,
    BlockyardError,
    ConfigurationError,
    DeadlineExceededError,
    RequestError,
    UnavailableError,
)
from blockyard.core.stored_key import stored_keys
from blockyard.core.vocabulary import Availability, Generation, ItemStatus, PackId
from blockyard.testing.blocks import chain
from blockyard.testing.remote_bench import GEOMETRY, PackControl
from blockyard.tiers.arena import PAGE_BYTES
from blockyard.tiers.g4_packs import PACK_HEADER_BYTES, decode_pack_header
from blockyard.tiers.header import HEADER_BYTES, HeaderState

if TYPE_CHECKING:
    from tests.unit.remote_tier.conftest import MakeNode, Node

OK, SKIPPED = ItemStatus.OK, ItemStatus.SKIPPED
RUN = chain("prompt", 8)
"""Two full packs."""
FIRST_PACK, SECOND_PACK = RUN.key(3), RUN.key(7)


# --- what is there already ------------------------------------------------------------------------------------------
async def test_the_same_pack_of_another_writer_is_adopted(node: Node, make_node: MakeNode) -> None:
    await node.bench.put(RUN)
    before = dict(node.store.objects)
    other = make_node(node.store, node.index)
    await other.until_ready()
    assert (await other.bench.put(RUN)).all_ok
    assert node.store.objects == before


async def test_adopting_restores_lost_locators(node: Node) -> None:
    await node.bench.put(RUN)
    await node.index.drop_locators(node.bench.identity, PackId(FIRST_PACK), stored_keys(RUN, node.bench.group))
    await node.bench.put(RUN)
    assert (await node.bench.find(RUN)).availability == [Availability.G4] * 8


@pytest.mark.parametrize("damage", ["header", "length", "garbage"])
async def test_a_wrong_object_under_the_key_is_replaced(node: Node, damage: str) -> None:
    await node.bench.put(RUN)
    key = node.bench.key(FIRST_PACK)
    sound = node.store.objects[key]
    match damage:
        case "header":
            node.store.flip(key, 200)
        case "length":
            node.store.cut(key, len(sound) - 1)
        case _:
            node.store.objects[key] = b"not a pack"
    assert (await node.bench.put(RUN)).all_ok
    assert len(node.store.objects[key]) == len(sound)
    assert (await node.bench.load(RUN, first_slot=10)).all_ok


async def test_a_pack_that_was_read_damaged_is_replaced_not_adopted(node: Node) -> None:
    await node.bench.put(RUN)
    key = node.bench.key(FIRST_PACK)
    node.store.flip(key, len(node.store.objects[key]) - 1_000)
    assert not (await node.bench.load(RUN.slice(0, 4), first_slot=10)).all_ok
    assert (await node.bench.put(RUN)).all_ok
    assert (await node.bench.load(RUN, first_slot=20)).all_ok


# --- the store fails ------------------------------------------------------------------------------------------------
async def test_a_put_whose_answer_was_lost_is_adopted_at_the_second_attempt(node: Node) -> None:
    node.store.lose_next_answer(UnavailableError("the connection ended"))
    assert (await node.bench.put(RUN.slice(0, 4))).all_ok
    assert node.store.puts().count(node.bench.key(FIRST_PACK)) == 2
    assert (await node.bench.load(RUN.slice(0, 4), first_slot=10)).all_ok


@pytest.mark.parametrize("times", [1, 2])
async def test_short_failures_are_repeated(node: Node, times: int) -> None:
    node.bench.fill(RUN)
    node.store.fail_next(UnavailableError("slow down"), times)
    assert (await node.bench.run(node.bench.put_job(RUN))).all_ok


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnavailableError("gone"), ItemStatus.UNKNOWN),
        (DeadlineExceededError("late"), ItemStatus.TIMEOUT),
        (AccessDeniedError("no"), ItemStatus.UNKNOWN),
    ],
)
async def test_a_dead_store_fails_the_pack_and_skips_those_after_it(
    node: Node, error: BlockyardError, status: ItemStatus
) -> None:
    node.bench.fill(RUN)
    node.store.down = error
    answer = await node.bench.run(node.bench.put_job(RUN))
    assert answer.status == [status] * 4 + [SKIPPED] * 4
    assert len(node.index) == 0


async def test_a_put_ends_at_its_deadline(node: Node) -> None:
    node.bench.fill(RUN)
    node.store.gate.clear()
    job = msgspec.structs.replace(node.bench.put_job(RUN), ttl_ms=20)
    assert (await node.bench.run(job)).status == [ItemStatus.TIMEOUT] * 4 + [SKIPPED] * 4


async def test_packs_are_put_in_order(node: Node) -> None:
    await node.bench.put(RUN)
    assert node.store.puts()[-2:] == [node.bench.key(FIRST_PACK), node.bench.key(SECOND_PACK)]


# --- the index fails ------------------------------------------------------------------------------------------------
async def test_with_the_index_away_blocks_are_stored_and_announced_later(node: Node) -> None:
    node.index.down = True
    answer = await node.bench.put(RUN)
    assert answer.all_ok
    assert answer.pending
    node.index.down = False
    node.clock.advance(10)
    assert await node.tier.upkeep.round()
    assert (await node.bench.find(RUN)).availability == [Availability.G4] * 8


async def test_locators_are_written_only_after_the_object(node: Node) -> None:
    node.bench.fill(RUN)
    node.store.down = UnavailableError("gone")
    await node.bench.run(node.bench.put_job(RUN))
    assert "set_locators" not in node.index.calls


# --- the sources ----------------------------------------------------------------------------------------------------
async def test_a_source_that_was_granted_to_another_block_is_stale(node: Node) -> None:
    node.bench.fill(RUN)
    job = node.bench.put_job(RUN)
    node.bench.fill(chain("other", 1), first_slot=1)
    assert (await node.bench.run(job)).status == [SKIPPED, ItemStatus.STALE, SKIPPED, SKIPPED] + [SKIPPED] * 4
    assert node.store.puts() == ["kv/store.json"]


async def test_a_source_that_is_being_written_is_stale(node: Node) -> None:
    node.bench.fill(RUN)
    node.bench.arena.begin_write(2, Generation(2))
    job = node.bench.put_job(RUN)
    assert (await node.bench.run(job)).status[2] is ItemStatus.STALE


async def test_a_damaged_source_is_corrupt_and_nothing_is_stored(node: Node) -> None:
    node.bench.fill(RUN)
    node.bench.arena.payload(5)[100] ^= 0xFF
    answer = await node.bench.run(node.bench.put_job(RUN))
    assert answer.status == [OK] * 4 + [SKIPPED, ItemStatus.CORRUPT, SKIPPED, SKIPPED]
    assert (node.checksum_failures("g2"), node.checksum_checks("g2")) == (1, 8)
    assert node.bench.key(SECOND_PACK) not in node.store.objects


async def test_a_source_with_a_damaged_header_is_corrupt_and_counted_like_one_with_damaged_bytes(node: Node) -> None:
    node.bench.fill(RUN)
    at = PAGE_BYTES + 5 * HEADER_BYTES + 100
    (byte,) = os.pread(node.bench.arena.fd, 1, at)
    os.pwrite(node.bench.arena.fd, bytes([byte ^ 0xFF]), at)
    answer = await node.bench.run(node.bench.put_job(RUN))
    assert answer.status == [OK] * 4 + [SKIPPED, ItemStatus.CORRUPT, SKIPPED, SKIPPED]
    assert (node.checksum_failures("g2"), node.checksum_checks("g2")) == (1, 8)


async def test_without_verification_a_damaged_source_is_stored(make_node: MakeNode) -> None:
    node = make_node(skip_verification=True)
    await node.until_ready()
    node.bench.fill(RUN)
    node.bench.arena.payload(5)[100] ^= 0xFF
    assert (await node.bench.run(node.bench.put_job(RUN))).all_ok


async def test_a_freed_source_is_stale(node: Node) -> None:
    node.bench.fill(RUN)
    node.bench.arena.mark(0, Generation(1), HeaderState.FREE)
    assert (await node.bench.run(node.bench.put_job(RUN))).status[0] is ItemStatus.STALE


async def test_items_without_permission_are_skipped(node: Node) -> None:
    node.bench.fill(RUN)
    job = node.bench.put_job(RUN)
    control = PackControl(job)
    control.forbidden = {0, 1, 2, 3}
    assert (await node.bench.run(job, control)).status == [SKIPPED] * 8
    assert node.store.puts() == ["kv/store.json"]


# --- jobs that make no sense ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "change",
    [
        {"pack": bytes(16)},
        {"blocks": 5},
        {"blocks": 65},
        {"stride_bytes": 4_096},
        {"first_position": 1},
    ],
)
async def test_a_pack_with_another_shape_is_refused(node: Node, change: dict[str, object]) -> None:
    node.bench.fill(RUN)
    job = node.bench.put_job(RUN.slice(0, 4))
    wrong = msgspec.structs.replace(job, packs=(msgspec.structs.replace(job.packs[0], **change),))
    with pytest.raises(RequestError):
        await node.bench.run(wrong)


async def test_blocks_that_do_not_follow_each_other_are_refused(node: Node) -> None:
    node.bench.fill(RUN)
    job = node.bench.put_job(RUN.slice(0, 4))
    with pytest.raises(RequestError):
        await node.bench.run(msgspec.structs.replace(job, items=msgspec.structs.replace(job.items, parents=bytes(64))))


async def test_a_store_made_for_other_packs_takes_none_of_ours(node: Node, make_node: MakeNode) -> None:
    other = make_node(node.store, node.index, target_bytes=1 << 20)
    assert not await other.tier.upkeep.round()
    ok, detail = other.check("s3")
    assert not ok
    assert detail.startswith("g4.target_bytes: ")
    assert f"packs of {GEOMETRY.target_bytes} bytes" in detail
    await other.bench.attach()
    with pytest.raises(ConfigurationError):
        await other.bench.put(RUN)


async def test_a_written_pack_describes_itself(node: Node) -> None:
    await node.bench.put(RUN)
    header = decode_pack_header(node.store.objects[node.bench.key(SECOND_PACK)][:PACK_HEADER_BYTES])
    assert (header.first_position, header.blocks, header.blocks_per_pack) == (4, 4, 4)
    assert header.content_keys() == RUN.keys()[4:]
    assert header.same_run(replace(header, created_ms=1))
