"""Benchmarks of the pool: both sides hold the same chains, and rows that are not those registered end the case."""

import os
import sys
from pathlib import Path

import pytest
from bench.cases import memory, pool_ops
from bench.child import ROOT
from bench.errors import ChildError, WrongBytesError
from bench.peers import child as peers_child
from bench.peers.child import Peer
from bench.peers.environment import child_environment

from blockyard.core.pool import BlockPool

VLLM = {
    "sampling_params": "class SamplingParams:\n    def __init__(self, max_tokens): pass\n",
    "utils/gc_utils": "def freeze_gc_heap(): pass\n",
    "v1/request": """
class Request:
    def __init__(self, *, block_hasher, **others):
        self.block_hashes = block_hasher(self)
""",
    "v1/core/block_pool": """
class Block:
    def __init__(self, block_id): self.block_id = block_id

class BlockPool:
    def __init__(self, rows, enable_caching, hash_block_size):
        self.free = [Block(row) for row in range(1, rows)]
        self.cached = {}

    def get_new_blocks(self, count):
        granted, self.free = self.free[:count], self.free[count:]
        return granted

    def cache_full_blocks(self, request, blocks, cached, full, size, group):
        self.cached.update(zip(request.block_hashes[cached:full], blocks[cached:full], strict=True))

    def get_cached_block(self, name, groups):
        return [self.cached[name]]

    def touch(self, blocks): pass

    def free_blocks(self, blocks): self.free += blocks
""",
}
"""What stands in for vLLM: the calls that the program makes."""


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in VLLM.items():
        module = tmp_path / "vllm" / f"{name}.py"
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(text)
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    monkeypatch.setattr(peers_child, "child_environment", lambda: child_environment() | {"PYTHONPATH": path})
    monkeypatch.setenv("PEERS_PYTHON", sys.executable)
    return tmp_path / "vllm"


@pytest.mark.usefixtures("vllm")
def test_the_peer_says_what_each_verb_took() -> None:
    with Peer("vllm_pool", "numpy", rows=256, batch=32, depth=64) as peer:
        for _ in range(2):
            seconds = peer.ask("fill", chains=2)
            assert set(seconds) == {"allocate", "register", "free"}
            assert all(value > 0 for value in seconds.values())
        assert peer.round("match", lookups=5).amount == 5


def test_a_peer_that_finds_other_rows_has_no_figure(vllm: Path) -> None:
    module = vllm / "v1/core/block_pool.py"
    module.write_text(module.read_text().replace("[self.cached[name]]", "[Block(7)]"))
    with (
        Peer("vllm_pool", "numpy", rows=128, batch=32, depth=64) as peer,
        pytest.raises(ChildError, match="found in other rows"),
    ):
        peer.ask("fill", chains=1)


def test_without_the_peer_every_verb_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERS_PYTHON", "/nowhere/at/all/python")
    measures = list(pool_ops._against_vllm("pool_ops", 1_024, 1))
    assert [measure.measure for measure in measures] == ["allocate", "register", "register_from_keys", "free", "match"]
    assert all("make bench-peers" in measure.skipped for measure in measures)


def test_shards_and_groups_are_compared_with_the_pool_without() -> None:
    measure = pool_ops._against_itself("pool_ops", 64 * 8 * pool_ops.GROUPS)
    assert measure.value is not None
    assert measure.value > 0
    assert measure.bar == 0.87


def test_a_pool_that_finds_other_rows_has_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    find = BlockPool.find
    monkeypatch.setattr(BlockPool, "find", lambda *arguments: find(*arguments)[::-1])
    with pytest.raises(WrongBytesError, match="found in other rows"):
        pool_ops._OwnPool(64).fill(1)


@pytest.mark.parametrize("policy", ["lru", "tide"])
def test_a_full_pool_has_a_size_and_collections_have_times(policy: str) -> None:
    with memory._filled_pool() as child:
        assert child.ask("fill", policy=policy, rows=3_200, evicted=320) > 0
        assert len(child.ask("full_collections", times=3)) >= 3
