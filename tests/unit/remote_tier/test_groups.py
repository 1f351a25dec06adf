"""Rows of several KV groups with one content key in the remote tier: side by side, never one for the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from blockyard.core.errors import RequestError
from blockyard.core.stored_key import stored_key, stored_keys
from blockyard.core.vocabulary import Availability, GroupId, ItemStatus, PackId
from blockyard.testing.blocks import chain
from blockyard.tiers.g4_packs import PACK_HEADER_BYTES, decode_pack_header
from blockyard.wire.worker_channel import Find

if TYPE_CHECKING:
    from tests.unit.remote_tier.conftest import Node

FULL, WINDOW, LATENT = GroupId(0), GroupId(1), GroupId(2)
RUN = chain("prompt", 8)
"""Two full packs."""
HIT, MISS = Availability.G4, Availability.MISS


async def put(node: Node, *groups: GroupId) -> None:
    for group in groups:
        node.bench.group = group
        assert (await node.bench.put(RUN)).all_ok


async def loads(node: Node, group: GroupId) -> list[ItemStatus]:
    """Load a group; every row that is reported as loaded has the bytes and the name of this group."""
    node.bench.group = group
    answer = await node.bench.load(RUN, first_slot=10)
    assert node.bench.holds(RUN, first_slot=10) == [status is ItemStatus.OK for status in answer.status]
    return answer.status


async def test_rows_of_two_groups_with_one_key_come_back_as_themselves(node: Node) -> None:
    await put(node, FULL, WINDOW)
    assert len([key for key in node.store.objects if "/p1/" in key]) == 4
    for group in (WINDOW, FULL):
        assert await loads(node, group) == [ItemStatus.OK] * 8


async def test_a_group_that_was_not_stored_is_a_miss(node: Node) -> None:
    await put(node, WINDOW)
    for group, answer in ((WINDOW, HIT), (FULL, MISS), (LATENT, MISS)):
        node.bench.group = group
        assert (await node.bench.find(RUN)).availability == [answer] * 8


async def test_packs_lie_under_their_stored_keys_and_say_which_group_they_hold(node: Node) -> None:
    await put(node, WINDOW)
    body = node.store.objects[node.bench.key(PackId(stored_key(RUN.key(3), WINDOW)))]
    header = decode_pack_header(body[:PACK_HEADER_BYTES])
    assert (header.group, header.content_keys()) == (WINDOW, RUN.keys()[:4])
    assert node.bench.key(PackId(RUN.key(3))) not in node.store.objects


async def test_a_lost_index_is_rebuilt_with_the_rows_of_every_group(node: Node) -> None:
    await put(node, FULL, WINDOW)
    node.index.lose_everything()
    assert await node.tier.upkeep.round()
    assert len(node.index) == 16
    for group in (FULL, WINDOW):
        assert await loads(node, group) == [ItemStatus.OK] * 8


async def test_a_record_of_another_group_is_not_the_row_that_was_asked_for(node: Node) -> None:
    """An entry of the index that leads to the pack of another group, as an index gone wrong could hold it."""
    await put(node, FULL, WINDOW)
    keys = stored_keys(RUN, WINDOW)
    node.bench.group = FULL
    false = [locator for locator in (await node.bench.find(RUN)).locators if locator is not None]
    await node.index.set_locators(node.bench.identity, list(zip(keys, false, strict=True)))
    assert await loads(node, WINDOW) == [ItemStatus.NOT_FOUND] * 8
    assert (await node.bench.find(RUN)).availability == [MISS] * 8
    assert node.checksum_failures("g4") == 0
    assert await loads(node, FULL) == [ItemStatus.OK] * 8


async def test_damage_in_the_pack_of_one_group_leaves_the_other_alone(node: Node) -> None:
    await put(node, FULL, WINDOW)
    name = node.bench.key(PackId(stored_key(RUN.key(3), WINDOW)))
    body = bytearray(node.store.objects[name])
    body[PACK_HEADER_BYTES + 256 + 100] ^= 1
    node.store.objects[name] = bytes(body)
    assert await loads(node, WINDOW) == [ItemStatus.CORRUPT] + [ItemStatus.OK] * 7
    assert (await node.bench.find(RUN)).availability == [MISS] * 4 + [HIT] * 4
    assert await loads(node, FULL) == [ItemStatus.OK] * 8
    assert (await node.bench.find(RUN)).availability == [HIT] * 8


async def test_a_pack_named_like_that_of_another_group_is_refused(node: Node) -> None:
    node.bench.fill(RUN)
    job = node.bench.put_job(RUN)
    with pytest.raises(RequestError, match="the id of a pack"):
        await node.bench.run(msgspec.structs.replace(job, group=WINDOW))
    assert [key for key in node.store.objects if "/p1/" in key] == []


async def test_a_slot_of_another_group_is_no_source_for_a_pack(node: Node) -> None:
    node.bench.fill(RUN)
    node.bench.group = WINDOW
    answer = await node.bench.run(node.bench.put_job(RUN))
    assert answer.status == [ItemStatus.STALE] * 4 + [ItemStatus.SKIPPED] * 4
    assert [key for key in node.store.objects if "/p1/" in key] == []


@pytest.mark.parametrize("group", [-1, 65_536])
async def test_a_question_for_a_group_that_cannot_be_is_refused(node: Node, group: int) -> None:
    with pytest.raises(RequestError):
        await node.tier.executor.find(Find(identity=node.bench.identity, group=group, keys=RUN.key(0)))


async def test_a_pack_with_a_false_group_in_its_header_is_not_indexed(node: Node) -> None:
    await put(node, WINDOW)
    name = node.bench.key(PackId(stored_key(RUN.key(3), WINDOW)))
    body = node.store.objects[name]
    header = replace(decode_pack_header(body[:PACK_HEADER_BYTES]), group=LATENT)
    node.store.objects[name] = header.encode() + body[PACK_HEADER_BYTES:]
    node.index.lose_everything()
    assert await node.tier.upkeep.round()
    assert len(node.index) == 4
