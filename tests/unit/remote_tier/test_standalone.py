"""A remote tier that serves no node: it keeps the index, and takes no block-manager."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from blockyard.core.errors import UnsupportedOperationError
from blockyard.core.stored_key import stored_keys
from blockyard.testing.blocks import chain
from blockyard.testing.memory_index import MemoryIndex
from blockyard.tiers.arena import Arena
from blockyard.tiers.prefix_index import IndexState
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.worker_channel import Attach

if TYPE_CHECKING:
    from tests.unit.remote_tier.conftest import MakeNode, Node

RUN = chain("prompt", 8)


async def test_it_is_ready_without_a_block_manager(make_node: MakeNode) -> None:
    node = make_node(standalone=True)
    while not await node.tier.upkeep.round():
        node.clock.advance(10)
    assert {check.name: check.ok for check in node.health.checks} == {"redis": True, "s3": True}


async def test_it_rebuilds_a_lost_index_of_blocks_that_others_stored(node: Node, make_node: MakeNode) -> None:
    await node.bench.put(RUN)
    alone = make_node(node.store, MemoryIndex(node.clock), standalone=True)
    assert (await alone.index.meta()).state is IndexState.ABSENT
    while not await alone.tier.upkeep.round():
        alone.clock.advance(10)
    assert (await alone.index.meta()).state is IndexState.READY
    found = await alone.index.find(node.bench.identity, stored_keys(RUN, node.bench.group))
    assert None not in found.locators


async def test_a_block_manager_that_attaches_is_refused(make_node: MakeNode) -> None:
    node = make_node(standalone=True)
    with Arena.create(2, 4_096) as arena:
        fd = os.dup(arena.fd)
        request = Attach(version=PROTOCOL_VERSION, instance="node-a", epoch=1, arena=arena.info())
        with pytest.raises(UnsupportedOperationError, match="serves no node") as raised:
            await node.tier.executor.attach(request, fd)
    assert raised.value.fields == {"key": "g4.standalone"}
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
