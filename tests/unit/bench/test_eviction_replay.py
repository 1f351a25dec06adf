"""Recorded loads through the real pool: exact hits of LRU and Lineage, the limit, and what TIDE makes of them.

The numbers of LRU and of the limit are those of a simulator that shares no code with this project.
"""

import random
from itertools import combinations

import pytest
from bench.cases.eviction import LRU_RATES, POLICIES, SHARES
from bench.cases.eviction_speed import OrderedDictLru, bare_hits, policy_hits
from bench.replay.belady import belady_hits
from bench.replay.replay import replay_hits
from bench.replay.trace import TRACES, Trace, load

from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.eviction.registry import known_policies, policy_factory
from blockyard.core.eviction.tide import TidePolicy
from blockyard.core.vocabulary import ContentKey

SMALL, LARGE = 500, 4000
LRU_HITS = {SMALL: 2563, LARGE: 5920}
LIMITS = {SMALL: 7346, LARGE: 19512}
TIDE_HITS = {SMALL: 4025, LARGE: 8673}
"""Near ties of values may fall otherwise where logarithms are rounded otherwise."""


@pytest.fixture(scope="module")
def chats() -> Trace:
    return load("mooncake_conversation").head(2500)


def forest(seed: int) -> Trace:
    """A small load of chains that share prefixes."""
    chance = random.Random(seed)
    labels = ["".join(chance.choice("ab") for _ in range(chance.randint(1, 3))) for _ in range(9)]
    requests = [[ContentKey(label[: end + 1].encode().rjust(16)) for end in range(len(label))] for label in labels]
    return Trace(f"forest {seed}", tuple(requests), len({key for keys in requests for key in keys}))


def most_hits(requests: tuple[list[ContentKey], ...], capacity: int) -> int:
    """The most hits that any choices of victims give, out of all that can be in the cache after each request."""
    best: dict[frozenset[ContentKey], int] = {frozenset(): 0}
    for request in requests:
        keys = request[:capacity]
        after: dict[frozenset[ContentKey], int] = {}
        for kept, hits in best.items():
            found = next((index for index, key in enumerate(keys) if key not in kept), len(keys))
            others = sorted(kept.difference(keys))
            for left in combinations(others, min(len(others), capacity - len(keys))):
                cached = frozenset(keys).union(left)
                after[cached] = max(after.get(cached, 0), hits + found)
        best = after
    return max(best.values())


def test_a_trace_holds_the_whole_blocks_of_its_requests() -> None:
    trace = load("mooncake_synthetic")
    assert (len(trace.requests), trace.references, trace.distinct) == (2_886, 117_888, 40_148)
    assert [trace.capacity(share) for share in (0.01, 0.5, 0.0)] == [401, 20_074, 1]


@pytest.mark.parametrize("capacity", [SMALL, LARGE])
@pytest.mark.parametrize("policy", ["lru", "lineage"])
def test_lru_and_lineage_hit_exactly_what_they_must(chats: Trace, policy: str, capacity: int) -> None:
    assert replay_hits(chats, capacity, policy_factory(policy)) == LRU_HITS[capacity]


@pytest.mark.parametrize("capacity", [SMALL, LARGE])
def test_tide_hits_more_than_lru(chats: Trace, capacity: int) -> None:
    assert policy_hits(chats, capacity, TidePolicy) == pytest.approx(TIDE_HITS[capacity], rel=0.005)
    assert TIDE_HITS[capacity] > 1.3 * LRU_HITS[capacity]


def test_tide_is_deterministic() -> None:
    trace = load("mooncake_synthetic").head(300)
    assert policy_hits(trace, 700, TidePolicy) == policy_hits(trace, 700, TidePolicy) > 0


@pytest.mark.parametrize("capacity", [SMALL, LARGE])
def test_the_limit_is_that_of_an_independent_simulator(chats: Trace, capacity: int) -> None:
    assert belady_hits(chats, capacity) == LIMITS[capacity]


@pytest.mark.parametrize("seed", range(6))
def test_no_choice_of_victims_has_more_hits_than_the_limit(seed: int) -> None:
    trace = forest(seed)
    for capacity in (3, 4):
        assert belady_hits(trace, capacity) == most_hits(trace.requests, capacity)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_has_more_hits_than_the_limit_also_where_it_leaves_holes(policy: str) -> None:
    trace = Trace("forests", tuple(keys for seed in range(40) for keys in forest(seed).requests), 14)
    for capacity in (2, 5, 9):
        assert 0 < replay_hits(trace, capacity, policy_factory(policy)) <= belady_hits(trace, capacity)


def test_all_sides_of_the_speed_case_store_the_same_blocks(chats: Trace) -> None:
    hits = {policy_hits(chats, SMALL, policy) for policy in (LruPolicy, OrderedDictLru)}
    assert hits == {bare_hits(chats, SMALL)} == {LRU_HITS[SMALL]}


def test_every_policy_of_the_core_is_measured() -> None:
    assert set(POLICIES) == set(known_policies())
    assert {name: len(rates) for name, rates in LRU_RATES.items()} == dict.fromkeys(TRACES, len(SHARES))
