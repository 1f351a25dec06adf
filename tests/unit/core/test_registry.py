"""What pools of one node know together: where a key is, what is attached to it, who hears of its uses.

Numbers are those of KVBM's behaviours.
"""

from collections.abc import Sequence

import pytest

from blockyard.core.errors import BlockNotFoundError, IntegrityError, KernelError
from blockyard.core.pool import BlockPool
from blockyard.core.registry import AttachmentKindError, BlockRegistry
from blockyard.core.states import DuplicatePolicy
from blockyard.core.vocabulary import ContentKey, GroupId, Tier
from blockyard.testing.blocks import chain, clear, hold, key, make_pool, store

RUN = chain("a", 3)
KEY = RUN.key(0)
FULL, WINDOW = GroupId(0), GroupId(1)


def two_tiers() -> tuple[BlockRegistry, BlockPool, BlockPool]:
    registry = BlockRegistry()
    return registry, make_pool(4, registry=registry), make_pool(4, tier=Tier.G3, registry=registry)


# --- presence -----------------------------------------------------------------------------------------------------
def test_38_presence_is_told_per_tier_and_group() -> None:
    registry, host, disk = two_tiers()
    store(host, RUN.slice(0, 2))
    store(disk, RUN.slice(1, 3))
    store(disk, RUN.slice(0, 1), WINDOW)
    assert registry.tiers == (Tier.G2, Tier.G3)
    assert registry.holds(Tier.G2, RUN.keys(), FULL) == [True, True, False]
    assert registry.holds(Tier.G3, RUN.keys(), WINDOW) == [True, False, False]
    assert registry.holds(Tier.G4, RUN.keys(), FULL) == [False] * 3
    assert registry.tiers_of(RUN.keys(), FULL) == [(Tier.G2,), (Tier.G2, Tier.G3), (Tier.G3,)]
    assert [registry.is_present(name) for name in (*RUN.keys(), key("other"))] == [True, True, True, False]
    assert BlockRegistry().tiers_of([KEY], FULL) == [()]


def test_asking_for_presence_is_no_use() -> None:
    registry, host, _ = two_tiers()
    rows = store(host, RUN)
    registry.observe(lambda tier, group, keys: pytest.fail("presence was asked, nothing used"))
    registry.tiers_of(RUN.keys(), FULL)
    assert host.held == 0
    with host.evict(3) as doomed:
        assert doomed.ids == tuple(reversed(rows))


def test_38_two_copies_in_one_tier_count_once() -> None:
    registry = BlockRegistry()
    pool = make_pool(2, duplicates=DuplicatePolicy.ALLOW, registry=registry)
    first, second = hold(pool, RUN.slice(0, 1)), hold(pool, RUN.slice(0, 1))
    first.release()
    second.release()
    assert registry.holds(Tier.G2, [KEY], FULL) == [True]
    pool.reset_inactive()
    assert registry.holds(Tier.G2, [KEY], FULL) == [False]


def test_a_tier_has_one_pool() -> None:
    registry, _, _ = two_tiers()
    with pytest.raises(KernelError) as refused:
        make_pool(1, registry=registry)
    assert refused.value.fields == {"tier": "g2"}


# --- attachments --------------------------------------------------------------------------------------------------
def test_37_the_last_unique_value_counts_and_many_are_kept_in_order() -> None:
    registry, host, _ = two_tiers()
    store(host, RUN)
    registry.attach_unique(KEY, "first")
    registry.attach_unique(KEY, "last")
    registry.attach(KEY, 1)
    registry.attach(KEY, 2)
    assert registry.attached(KEY, str) == ("last",)
    assert registry.attached(KEY, int) == (1, 2)
    assert registry.attached(KEY, float) == ()
    assert registry.attached(RUN.key(1), str) == ()
    host.check_integrity()


def test_37_values_of_one_type_at_one_key_are_either_unique_or_many() -> None:
    registry, host, _ = two_tiers()
    store(host, RUN)
    registry.attach_unique(KEY, "one")
    registry.attach(KEY, 1)
    with pytest.raises(AttachmentKindError) as refused:
        registry.attach(KEY, "many")
    assert refused.value.fields == {"type": "str", "attached": "one"}
    with pytest.raises(AttachmentKindError) as refused:
        registry.attach_unique(KEY, 2)
    assert refused.value.fields == {"type": "int", "attached": "many"}
    assert (registry.attached(KEY, str), registry.attached(KEY, int)) == (("one",), (1,))
    registry.attach(RUN.key(1), "another key decides for itself")


def test_nothing_is_attached_to_an_absent_key() -> None:
    registry, _, _ = two_tiers()
    for attach in (registry.attach, registry.attach_unique):
        with pytest.raises(BlockNotFoundError):
            attach(KEY, "value")


def test_36_attachments_go_when_the_last_tier_drops_the_key() -> None:
    registry, host, disk = two_tiers()
    store(host, RUN)
    store(disk, RUN)
    store(host, RUN.slice(0, 1), WINDOW)
    registry.attach_unique(KEY, "value")
    clear(host).doomed.release()
    assert registry.attached(KEY, str) == ("value",)
    disk.evict(3).release()
    assert registry.attached(KEY, str) == ()
    store(disk, RUN)
    assert registry.attached(KEY, str) == ()


def test_36_the_end_of_an_older_block_takes_nothing_from_a_newer_one_of_the_same_key() -> None:
    registry, host, _ = two_tiers()
    older = hold(host, RUN.slice(0, 1))
    host.condemn(older.ids[0], older.generations[0])
    store(host, RUN.slice(0, 1))
    registry.attach_unique(KEY, "newer")
    older.release()
    host.drain_doomed().release()
    assert registry.holds(Tier.G2, [KEY], FULL) == [True]
    assert registry.attached(KEY, str) == ("newer",)


def test_a_check_finds_attachments_without_a_block() -> None:
    registry, host, _ = two_tiers()
    store(host, RUN)
    registry.attach(KEY, "value")
    host._table.names.index.clear()  # noqa: SLF001 - damage that no call makes
    with pytest.raises(IntegrityError, match="attachments"):
        host.check_integrity()


# --- uses ---------------------------------------------------------------------------------------------------------
def test_39_observers_hear_every_use_in_the_order_of_the_call() -> None:
    registry, host, disk = two_tiers()
    heard: list[tuple[str, Tier, GroupId, list[ContentKey]]] = []
    registry.observe(lambda tier, group, keys: heard.append(("first", tier, group, list(keys))))
    registry.observe(lambda tier, group, keys: heard.append(("second", tier, group, list(keys))))
    store(disk, RUN, WINDOW)
    backwards = [RUN.key(2), key("other"), RUN.key(0), RUN.key(2)]
    disk.match_scattered(backwards, WINDOW).blocks.release()
    host.match(RUN).release()
    assert heard == [
        (name, Tier.G3, WINDOW, used)
        for used in (RUN.keys(), [RUN.key(2), RUN.key(0), RUN.key(2)])
        for name in ("first", "second")
    ]


def test_an_observer_that_fails_stops_the_call_before_it_changes_anything() -> None:
    registry, host, _ = two_tiers()
    rows = store(host, RUN)
    told: list[Sequence[ContentKey]] = []

    def refuse(tier: Tier, group: GroupId, keys: Sequence[ContentKey]) -> None:
        told.append(keys)
        raise ValueError("no")

    registry.observe(refuse)
    with pytest.raises(ValueError, match="no"):
        host.match(RUN)
    with host.allocate(1).blocks as blocks:
        assert (host.held, len(blocks)) == (0, 1)
    assert host.find(RUN) == list(rows)
    assert told == [RUN.keys()]
    host.check_integrity()
