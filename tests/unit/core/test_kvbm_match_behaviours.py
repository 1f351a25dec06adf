"""Behaviours that users of NVIDIA's KVBM pools rely on: lookups, and which of them count as uses.

Numbers are those of KVBM's behaviours.
"""

from collections.abc import Sequence

import pytest

from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.vocabulary import BlockId
from blockyard.testing.blocks import chain, hold, key, make_pool, store

RUN = chain("a", 4)


class CountingPolicy(LruPolicy):  # type: ignore[misc]
    """Keeps which rows were touched."""

    def __init__(self, columns: RowColumns) -> None:
        super().__init__(columns)
        self.touched: list[BlockId] = []

    def touch(self, blocks: Sequence[BlockId]) -> None:
        self.touched += blocks


def test_20_prefix_scattered_and_scan_differ_behind_a_miss() -> None:
    """[hit, hit, miss, hit]: a prefix has 2 blocks, the scattered match [x, x, none, x], a scan 3 blocks."""
    pool = make_pool(4)
    store(pool, RUN.slice(0, 2))
    store(pool, RUN.slice(3, 4))
    with pool.match(RUN) as prefix:
        assert prefix.keys == tuple(RUN.keys()[:2])
    scattered = pool.match_scattered(RUN)
    with scattered.blocks:
        assert scattered.places == (0, 1, None, 2)
        assert scattered.blocks.keys == (RUN.key(0), RUN.key(1), RUN.key(3))
    with pool.scan(RUN) as found:
        assert found.keys == (RUN.key(0), RUN.key(1), RUN.key(3))


def test_20_a_scattered_match_keeps_repeats_and_a_scan_does_not() -> None:
    """A key that stands there twice is pinned twice, or once."""
    pool = make_pool(1)
    store(pool, RUN.slice(0, 1))
    asked = [RUN.key(0), key("other"), RUN.key(0)]
    scattered = pool.match_scattered(asked)
    assert (scattered.places, [facts.refs for facts in scattered.blocks.facts]) == ((0, None, 1), [2, 2])
    scattered.blocks.release()
    with pool.scan(asked) as found:
        assert [facts.refs for facts in found.facts] == [1]
    assert pool.inactive == 1


def test_21_a_prefix_may_mix_held_and_unused_blocks() -> None:
    """Held, unused, held: all match, and the unused one leaves the inactive count."""
    pool = make_pool(3)
    run = RUN.slice(0, 3)
    store(pool, run)
    with pool.pin_all([run.key(0), run.key(2)]):
        assert pool.inactive == 1
        with pool.match(run) as matched:
            assert len(matched) == 3
            assert pool.inactive == 0


@pytest.mark.parametrize(
    ("verb", "uses"),
    [("match", (0,)), ("match_scattered", (0, 0)), ("scan", ()), ("scan with touch", (0,))],
)
def test_22_each_block_that_is_given_is_used_once_per_occurrence(verb: str, uses: tuple[int, ...]) -> None:
    """Misses are no uses; a scan is none unless asked; repeats count where they are given."""
    made: list[CountingPolicy] = []

    def make(columns: RowColumns) -> CountingPolicy:
        made.append(CountingPolicy(columns))
        return made[0]

    pool = make_pool(2, make)
    store(pool, RUN.slice(0, 1))
    made[0].touched.clear()
    asked = [RUN.key(0), key("other"), RUN.key(0)]
    if verb == "match_scattered":
        pool.match_scattered(asked).blocks.release()
    elif verb == "match":
        pool.match(asked).release()
    else:
        pool.scan(asked, touch=verb == "scan with touch").release()
    assert tuple(made[0].touched) == uses


def test_23_nothing_asked_is_nothing_found() -> None:
    """Empty input gives empty output in every lookup."""
    pool = make_pool(1)
    assert pool.find([]) == []
    assert len(pool.match([])) == len(pool.scan([])) == len(pool.pin_all([])) == 0
    scattered = pool.match_scattered([])
    assert (scattered.places, len(scattered.blocks)) == ((), 0)


def test_a_lookup_of_more_keys_than_rows_finds_what_there_is() -> None:
    """A chain longer than the tier is no error."""
    pool = make_pool(2)
    run = chain("long", 5)
    with hold(pool, run.slice(0, 2)), pool.match(run) as matched:
        assert len(matched) == 2
