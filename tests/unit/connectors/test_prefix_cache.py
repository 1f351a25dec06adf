"""The demo engine's own cache: never gives out a block that is in use or may still be written."""

import pytest

from blockyard.connectors.mock.prefix_cache import PrefixCache
from blockyard.core.errors import OutOfBlocksError
from blockyard.core.vocabulary import ContentKey, EngineBlockId


def key(name: int) -> ContentKey:
    return ContentKey(name.to_bytes(16, "little"))


def cache_with(blocks: int, keys: int) -> PrefixCache:
    cache = PrefixCache(blocks)
    taken, _ = cache.allocate(keys, ())
    for name, block in enumerate(taken):
        assert cache.insert(key(name), block)
    cache.let_go(taken)
    return cache


def test_the_longest_cached_prefix_is_held() -> None:
    cache = cache_with(4, 3)
    assert len(cache.hold_prefix([key(0), key(1), key(9), key(2)])) == 2


def test_blocks_in_use_are_never_evicted() -> None:
    cache = cache_with(3, 3)
    held = cache.hold_prefix([key(0)])
    blocks, evicted = cache.allocate(2, ())
    assert set(blocks).isdisjoint(held)
    assert evicted == blocks
    with pytest.raises(OutOfBlocksError):
        cache.allocate(1, ())


def test_a_failed_allocation_changes_nothing() -> None:
    cache = cache_with(4, 2)
    with pytest.raises(OutOfBlocksError):
        cache.allocate(5, ())
    assert len(cache) == 2
    assert len(cache.allocate(4, ())[0]) == 4


def test_unusable_blocks_are_passed_over() -> None:
    cache = PrefixCache(2)
    blocks, _ = cache.allocate(1, {EngineBlockId(0)})
    assert blocks == [EngineBlockId(1)]
    with pytest.raises(OutOfBlocksError):
        cache.allocate(1, {EngineBlockId(0)})


def test_the_least_recently_used_block_goes_first() -> None:
    cache = cache_with(3, 3)
    cache.let_go(cache.hold_prefix([key(0)]))
    cache.allocate(1, ())
    assert cache.hold_prefix([key(1)]) == []
    assert len(cache.hold_prefix([key(0)])) == 1


def test_a_second_block_of_a_cached_key_stays_private_and_becomes_free_again() -> None:
    cache = cache_with(2, 1)
    blocks, _ = cache.allocate(1, ())
    assert not cache.insert(key(0), blocks[0])
    cache.let_go(blocks)
    assert cache.allocate(1, ())[0] == blocks


def test_clear_keeps_what_is_in_use() -> None:
    cache = cache_with(3, 3)
    cache.hold_prefix([key(0)])
    cache.clear()
    assert len(cache) == 1
    assert len(cache.allocate(2, ())[0]) == 2
