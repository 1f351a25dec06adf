"""Which packs can be put: cut by position, closed under prefixes, tails after rest."""

import pytest

from blockyard.core.block_name import BlockName
from blockyard.core.errors import ConfigurationError
from blockyard.core.events import BlockScope
from blockyard.core.pack_plan import MAX_TIMERS_PER_CALL, PackGeometry, PackPlan, PackPlanner
from blockyard.core.stored_key import StoredKey, stored_keys
from blockyard.core.vocabulary import (
    ROOT_KEY,
    ChainDigest,
    ContentKey,
    GroupId,
    IdentityDigest,
    PackId,
    TenantDigest,
)

SCOPE = BlockScope(IdentityDigest(bytes(32)), TenantDigest(b"t" * 16), GroupId(0), 16)
FOUR = PackGeometry(payload_bytes=4_096, target_bytes=4 * (4_096 + 256))
IDLE = 2.0


def chain(length: int, label: str = "a", after: list[BlockName] | None = None) -> list[BlockName]:
    """Blocks of a chain; with ``after`` a branch that follows those blocks."""
    names = list(after or [])
    for position in range(len(names), length):
        digest = ChainDigest(f"{label}{position:05d}".encode().ljust(32, b"."))
        names.append(BlockName(digest, names[-1].key if names else ROOT_KEY, position))
    return names


def keys(names: list[BlockName], group: GroupId = SCOPE.group) -> list[StoredKey]:
    return stored_keys((name.key for name in names), group)


def positions(plans: list[PackPlan]) -> list[tuple[int, int]]:
    return [(plan.first_position, len(plan.names)) for plan in plans]


@pytest.fixture
def planner() -> PackPlanner:
    return PackPlanner(FOUR, tail_idle_seconds=IDLE, retry_seconds=5.0)


# --- geometry -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("payload", "target", "blocks"),
    [
        (131_072, 4 << 20, 16),
        (4_096, 4_352, 1),
        (4_096, 2 * 4_352 - 1, 1),
        (4_096, 2 * 4_352, 2),
        (4 << 20, 4 << 20, 1),
        (8 << 20, 1, 1),
        (4_096, 64 << 20, 64),
        (1, 10 * 512, 8),
    ],
)
def test_blocks_per_pack_is_a_power_of_two_within_the_target(payload: int, target: int, blocks: int) -> None:
    assert PackGeometry(payload, target).blocks_per_pack == blocks


def test_stride_is_a_header_and_the_padded_payload() -> None:
    assert PackGeometry(131_072, 1).stride_bytes == 131_328
    assert PackGeometry(131_073, 1).stride_bytes == 131_584


def test_sizes_without_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError):
        PackGeometry(0, 1)


# --- full packs ---------------------------------------------------------------------------------------------------
def test_full_packs_are_cut_at_multiples_and_named_by_their_last_key(planner: PackPlanner) -> None:
    names = chain(10)
    planner.registered(names, SCOPE, 0.0)
    plans = planner.due(0.0)

    assert positions(plans) == [(0, 4), (4, 4)]
    assert [plan.pack for plan in plans] == [PackId(names[3].key), PackId(names[7].key)]
    assert list(plans[1].keys) == keys(names[4:8])
    assert (plans[0].identity, plans[0].tenant) == (SCOPE.identity, SCOPE.tenant)


def test_pack_joins_the_job_of_the_one_before_it(planner: PackPlanner) -> None:
    names = chain(8)
    planner.registered(names, SCOPE, 0.0)
    first, second = planner.due(0.0)

    assert first.previous is None
    assert second.previous == first.pack


def test_planned_pack_is_not_planned_again_until_it_failed(planner: PackPlanner) -> None:
    planner.registered(chain(4), SCOPE, 0.0)
    (plan,) = planner.due(0.0)
    assert planner.due(100.0) == []

    planner.failed(plan.pack, 100.0)
    assert planner.due(104.9) == []
    assert positions(planner.due(105.0)) == [(0, 4)]
    assert planner.in_flight == 1


def test_stored_pack_is_never_planned_again(planner: PackPlanner) -> None:
    names = chain(4)
    planner.registered(names, SCOPE, 0.0)
    (plan,) = planner.due(0.0)
    planner.stored(plan.pack)

    planner.evicted(keys(names), 1.0)
    planner.registered(names, SCOPE, 2.0)
    assert planner.due(100.0) == []


def test_pack_waits_for_the_one_before_it(planner: PackPlanner) -> None:
    names = chain(8)
    planner.registered(names[4:], SCOPE, 0.0)
    assert planner.due(10.0) == []

    planner.registered(names[:4], SCOPE, 10.0)
    (first,) = planner.due(10.0)
    assert planner.due(20.0) == []
    planner.stored(first.pack)
    (second,) = planner.due(20.0)
    assert (second.first_position, second.previous) == (4, None)


def test_pack_before_may_be_learned_from_a_lookup(planner: PackPlanner) -> None:
    names = chain(8)
    planner.registered(names[4:], SCOPE, 0.0)
    assert planner.due(0.0) == []

    planner.known(keys(names[:4]))
    assert positions(planner.due(0.0)) == [(4, 4)]


def test_blocks_may_be_registered_in_any_order(planner: PackPlanner) -> None:
    names = chain(8)
    for name in (names[5], names[7], names[0], names[3], names[6], names[2], names[4]):
        planner.registered([name], SCOPE, 0.0)
    assert planner.due(0.0) == []

    planner.registered([names[1]], SCOPE, 0.0)
    assert positions(planner.due(0.0)) == [(0, 4)]


def test_pack_with_an_evicted_block_is_not_planned(planner: PackPlanner) -> None:
    names = chain(4)
    planner.registered(names, SCOPE, 0.0)
    planner.evicted(keys([names[1]]), 0.0)

    assert planner.due(0.0) == []
    planner.registered([names[1]], SCOPE, 1.0)
    assert positions(planner.due(1.0)) == [(0, 4)]


def test_known_blocks_are_not_put(planner: PackPlanner) -> None:
    names = chain(4)
    planner.known(keys(names))
    planner.registered(names, SCOPE, 0.0)

    assert planner.due(100.0) == []


def test_lost_object_is_put_again_after_a_rest(planner: PackPlanner) -> None:
    names = chain(4)
    planner.registered(names, SCOPE, 0.0)
    planner.stored(planner.due(0.0)[0].pack)

    planner.lost(keys(names), 10.0)
    assert positions(planner.due(15.0)) == [(0, 4)]


def test_branches_of_one_prefix_share_its_pack(planner: PackPlanner) -> None:
    stem = chain(4)
    left, right = chain(8, "l", stem), chain(8, "r", stem)
    planner.registered([*left, *right[4:]], SCOPE, 0.0)
    plans = planner.due(0.0)

    assert positions(plans) == [(0, 4), (4, 4), (4, 4)]
    assert [plan.previous for plan in plans] == [None, PackId(stem[3].key), PackId(stem[3].key)]
    assert {plan.pack for plan in plans[1:]} == {PackId(left[7].key), PackId(right[7].key)}


def test_branches_within_a_segment_make_packs_of_their_own(planner: PackPlanner) -> None:
    stem = chain(2)
    left, right = chain(4, "l", stem), chain(4, "r", stem)
    planner.registered([*left, *right[2:]], SCOPE, 0.0)

    assert {plan.keys for plan in planner.due(0.0)} == {tuple(keys(left)), tuple(keys(right))}


def test_job_is_bounded_and_goes_on_when_its_last_pack_is_stored() -> None:
    planner = PackPlanner(FOUR, max_job_blocks=8)
    planner.registered(chain(24), SCOPE, 0.0)
    first = planner.due(0.0)
    assert positions(first) == [(0, 4), (4, 4)]
    assert planner.due(0.0) == []

    for plan in first:
        planner.stored(plan.pack)
    second = planner.due(0.0)
    assert positions(second) == [(8, 4)]
    planner.stored(second[0].pack)
    assert positions(planner.due(0.0)) == [(12, 4)]


def test_plans_per_call_are_limited_and_the_rest_comes_later(planner: PackPlanner) -> None:
    for label in "abcde":
        planner.registered(chain(4, label), SCOPE, 0.0)

    assert len(planner.due(0.0, limit=3)) == 3
    assert len(planner.due(0.0, limit=3)) == 2


def test_packs_of_one_block_have_no_tails() -> None:
    planner = PackPlanner(PackGeometry(4_096, 1))
    planner.registered(chain(3), SCOPE, 0.0)

    assert positions(planner.due(0.0)) == [(0, 1), (1, 1), (2, 1)]


# --- tails --------------------------------------------------------------------------------------------------------
def test_tail_is_due_when_its_chain_rested(planner: PackPlanner) -> None:
    names = chain(6)
    planner.registered(names, SCOPE, 0.0)
    assert positions(planner.due(0.0)) == [(0, 4)]
    planner.stored(PackId(names[3].key))

    assert planner.due(IDLE - 0.1) == []
    (tail,) = planner.due(IDLE)
    assert (tail.first_position, tail.pack, tail.previous) == (4, PackId(names[5].key), None)


def test_growing_chain_has_no_tail(planner: PackPlanner) -> None:
    names = chain(3)
    for position, name in enumerate(names):
        planner.registered([name], SCOPE, float(position))
        assert planner.due(float(position)) == []

    assert positions(planner.due(2.0 + IDLE)) == [(0, 3)]


def test_longer_tail_follows_a_stored_one(planner: PackPlanner) -> None:
    names = chain(3)
    planner.registered(names[:2], SCOPE, 0.0)
    planner.stored(planner.due(IDLE)[0].pack)
    assert planner.due(100.0) == []

    planner.registered(names[2:], SCOPE, 100.0)
    assert positions(planner.due(100.0 + IDLE)) == [(0, 3)]


def test_tail_joins_the_job_of_the_full_pack_before_it(planner: PackPlanner) -> None:
    names = chain(6)
    planner.registered(names, SCOPE, 0.0)
    plans = planner.due(IDLE)

    assert positions(plans) == [(0, 4), (4, 2)]
    assert plans[1].previous == plans[0].pack


def test_eviction_of_the_end_leaves_a_shorter_tail(planner: PackPlanner) -> None:
    names = chain(3)
    planner.registered(names, SCOPE, 0.0)
    planner.evicted(keys([names[2]]), 1.0)

    assert positions(planner.due(1.0 + IDLE)) == [(0, 2)]


def test_eviction_of_the_end_of_a_stored_tail_plans_nothing(planner: PackPlanner) -> None:
    names = chain(3)
    planner.registered(names, SCOPE, 0.0)
    planner.stored(planner.due(IDLE)[0].pack)
    planner.evicted(keys([names[2]]), 10.0)

    assert planner.due(100.0) == []


def test_tails_whose_time_comes_all_at_once_are_looked_at_over_several_calls() -> None:
    planner = PackPlanner(FOUR, tail_idle_seconds=IDLE)
    chains = MAX_TIMERS_PER_CALL + 10
    for number in range(chains):
        planner.registered(chain(1, f"{number}-"), SCOPE, 0.0)

    first = planner.due(IDLE, limit=2 * chains)
    assert len(first) == MAX_TIMERS_PER_CALL
    assert len(planner.due(IDLE, limit=2 * chains)) == 10


# --- memory -------------------------------------------------------------------------------------------------------
def test_memory_follows_what_g2_holds() -> None:
    planner = PackPlanner(FOUR, max_known=16)
    for turn in range(200):
        names = chain(7, f"{turn}-")
        planner.registered(names, SCOPE, float(turn))
        for plan in planner.due(float(turn)):
            planner.stored(plan.pack)
        planner.evicted(keys(list(reversed(names))), float(turn))

    assert planner.in_flight == 0
    assert planner.remembered <= 16 + 64


@pytest.mark.parametrize("length", [3, 4, 9])
def test_memory_is_bounded_where_nobody_asks_what_is_due(length: int) -> None:
    planner = PackPlanner(FOUR, max_known=16)
    for turn in range(500):
        names = chain(length, f"{turn}-")
        planner.registered(names, SCOPE, float(turn))
        planner.evicted(keys(list(reversed(names))), float(turn))

    assert planner.remembered <= 2 * 64


def test_a_block_that_left_and_came_back_before_its_turn_is_put_once(planner: PackPlanner) -> None:
    names = chain(4)
    for _ in range(3):
        planner.registered(names, SCOPE, 0.0)
        planner.evicted(keys(list(reversed(names))), 0.0)
    planner.registered(names, SCOPE, 0.0)

    assert positions(planner.due(0.0)) == [(0, 4)]
    assert planner.due(0.0) == []


@pytest.mark.parametrize("parent", [b"x" * 16, b"a" * 16, b"b" * 16], ids=["itself", "too far away", "below it"])
def test_block_whose_parent_is_no_neighbour_is_in_no_pack(planner: PackPlanner, parent: bytes) -> None:
    first = BlockName(ChainDigest(b"a" * 32), ROOT_KEY, 0)
    last = BlockName(ChainDigest(b"x" * 32), ContentKey(parent), 3)
    below = BlockName(ChainDigest(b"b" * 32), last.key, 4)
    planner.registered([first, last, below], SCOPE, now=0.0)

    planned = {key for plan in planner.due(now=IDLE) for key in plan.keys}
    assert planned.isdisjoint({last.key, below.key})


def test_pack_that_follows_one_without_room_waits_with_it() -> None:
    planner = PackPlanner(FOUR, max_job_blocks=6)
    planner.registered(chain(10), SCOPE, now=0.0)

    assert positions(planner.due(now=IDLE)) == [(0, 4)]


def test_pack_under_way_is_not_put_twice_when_its_block_comes_back(planner: PackPlanner) -> None:
    names = chain(4)
    planner.registered(names, SCOPE, now=0.0)
    assert positions(planner.due(now=0.0)) == [(0, 4)]
    planner.evicted(keys([names[-1]]), now=0.0)
    planner.registered(names[-1:], SCOPE, now=0.0)

    assert planner.due(now=0.0) == []
