"""The way of blocks through the remote tier: stored, found, loaded byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blockyard.core.errors import RequestError, TooManyKeysError
from blockyard.core.vocabulary import Availability, ItemStatus
from blockyard.testing.blocks import chain
from blockyard.testing.worker_jobs import TEST_IDENTITY
from blockyard.wire.worker_channel import Find

if TYPE_CHECKING:
    from tests.unit.remote_tier.conftest import MakeNode, Node

HIT, MISS, UNKNOWN = Availability.G4, Availability.MISS, Availability.UNKNOWN
RUN = chain("prompt", 8)
"""Two full packs."""
FIRST_PACK = RUN.key(3)


async def test_blocks_come_back_byte_for_byte(node: Node) -> None:
    assert (await node.bench.put(RUN)).status == [ItemStatus.OK] * 8
    assert (await node.bench.find(RUN)).availability == [HIT] * 8
    assert (await node.bench.load(RUN, first_slot=10)).all_ok
    assert node.bench.holds(RUN, first_slot=10) == [True] * 8


async def test_another_node_finds_and_loads_them(node: Node, make_node: MakeNode) -> None:
    await node.bench.put(RUN)
    other = make_node(node.store, node.index)
    await other.until_ready()
    assert (await other.bench.load(RUN)).all_ok
    assert other.bench.holds(RUN) == [True] * 8


async def test_part_of_a_pack_is_loaded_with_one_request(node: Node) -> None:
    await node.bench.put(RUN)
    node.store.calls.clear()
    assert (await node.bench.load(RUN.slice(1, 3), first_slot=20)).all_ok
    assert [call.verb for call in node.store.calls] == ["get_range"]
    assert node.bench.holds(RUN.slice(1, 3), first_slot=20) == [True, True]


async def test_a_loaded_slot_carries_its_grant_and_its_names(node: Node) -> None:
    await node.bench.put(RUN)
    node.bench.fill(chain("older", 1), first_slot=9)
    await node.bench.load(RUN.slice(0, 1), first_slot=9)
    header = node.bench.arena.read(9).header
    assert (header.generation, header.bm_epoch, header.worker_epoch) == (2, 7, 3)
    assert (header.digest, header.parent, header.tenant) == (RUN.digest(0), RUN.parent_of(0), node.bench.tenant)


async def test_a_longer_pack_of_the_segment_takes_over_from_the_tail(node: Node) -> None:
    tail = RUN.slice(0, 2)
    for run, expected in ((tail, tail.key(1)), (RUN.slice(0, 4), FIRST_PACK), (tail, FIRST_PACK)):
        assert (await node.bench.put(run)).all_ok
        packs = {bytes(locator.pack) for locator in (await node.bench.find(tail)).locators if locator}
        assert packs == {bytes(expected)}


async def test_the_second_pack_of_a_chain_can_be_put_on_its_own(node: Node) -> None:
    assert (await node.bench.put(RUN.slice(4, 8))).all_ok
    assert (await node.bench.find(RUN)).availability == [MISS] * 4 + [HIT] * 4
    assert (await node.bench.load(RUN.slice(4, 8), first_slot=10)).all_ok


async def test_tenants_and_purge_epochs_have_keys_of_their_own(node: Node) -> None:
    await node.bench.put(RUN)
    tenant, identity = node.bench.tenant.hex(), TEST_IDENTITY.hex()[:32]
    stem = f"kv/p1/{tenant}/0/{identity}/{FIRST_PACK.hex()[:2]}/{FIRST_PACK.hex()}"
    assert stem in node.store.objects


# --- lookups --------------------------------------------------------------------------------------------------------
async def test_what_was_never_stored_is_a_miss(node: Node) -> None:
    assert (await node.bench.find(chain("other", 2))).availability == [MISS, MISS]


async def test_lookups_are_counted_with_their_denominator(node: Node) -> None:
    await node.bench.put(RUN)
    await node.bench.find(chain("other", 2))
    await node.bench.find(RUN)
    sample = node.metrics.registry.get_sample_value
    assert sample("blockyard_index_lookup_blocks_total", {"outcome": "hit"}) == 8
    assert sample("blockyard_index_lookup_blocks_total", {"outcome": "miss"}) == 2


async def test_a_dead_index_makes_everything_unknown(node: Node) -> None:
    await node.bench.put(RUN)
    node.index.down = True
    assert (await node.bench.find(RUN)).availability == [UNKNOWN] * 8


async def test_a_dead_index_is_not_asked_all_the_time(node: Node) -> None:
    node.index.down = True
    for _ in range(10):
        await node.bench.find(RUN)
    assert node.index.calls.count("find") == 3
    node.index.down = False
    node.clock.advance(10)
    assert (await node.bench.find(RUN)).availability == [MISS] * 8


async def test_nothing_is_known_before_the_store_has_answered(make_node: MakeNode) -> None:
    node = make_node()
    assert (await node.bench.find(RUN)).availability == [UNKNOWN] * 8


async def test_an_emptied_index_says_unknown_until_it_is_rebuilt(node: Node) -> None:
    await node.bench.put(RUN)
    node.index.lose_everything()
    assert (await node.bench.find(RUN)).availability == [UNKNOWN] * 8
    assert await node.tier.upkeep.round()
    assert (await node.bench.find(chain("other", 1))).availability == [MISS]
    assert (await node.bench.load(RUN, first_slot=10)).all_ok


async def test_what_is_left_of_an_index_is_used_while_it_is_rebuilt(node: Node) -> None:
    node.index.lose_everything()
    await node.bench.put(RUN.slice(0, 4))
    assert (await node.bench.find(RUN)).availability == [HIT] * 4 + [UNKNOWN] * 4


@pytest.mark.parametrize(("identity", "keys"), [(b"short", bytes(16)), (bytes(32), b"short")], ids=["identity", "keys"])
async def test_columns_of_the_wrong_length_are_refused(node: Node, identity: bytes, keys: bytes) -> None:
    with pytest.raises(RequestError):
        await node.tier.executor.find(Find(identity=identity, keys=keys))


async def test_too_many_keys_are_refused(node: Node) -> None:
    with pytest.raises(TooManyKeysError):
        await node.tier.executor.find(Find(identity=bytes(32), keys=bytes(16 * 4_097)))


async def test_lookups_mark_some_hits_as_in_use(node: Node) -> None:
    await node.bench.put(RUN)
    for _ in range(100):
        await node.bench.find(RUN)
    await node.tier.upkeep.round()
    assert 0 < node.index.calls.count("touch") < 30
