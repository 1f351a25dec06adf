"""Pins end exactly once: by release, by deadline, or with their table."""

import math
from collections.abc import Callable

import pytest

from blockyard.core.block_facts import BlockFacts
from blockyard.core.errors import HandleConsumedError, KernelError
from blockyard.core.pins import PinKind, PinOwner, PinTable
from blockyard.core.vocabulary import Tier
from blockyard.testing.blocks import chain, hold, make_pool

LEASE = PinOwner(PinKind.LEASE, "session 1 request 1")
JOB = PinOwner(PinKind.JOB, "7")


def nothing_leaves(tier: Tier, left: list[BlockFacts]) -> None:
    raise AssertionError(tier, left)


def test_releasing_an_owner_twice_is_no_error() -> None:
    pool = make_pool(4)
    pins = PinTable(nothing_leaves)
    pins.add(LEASE, hold(pool, chain("a", 2)), deadline=5.0)
    pins.add(LEASE, hold(pool, chain("b", 1)), deadline=6.0)
    assert (pins.count, pool.held, LEASE in pins) == (2, 3, True)
    assert pins.release(LEASE) == 2
    assert pins.release(LEASE) == 0
    assert pool.inactive == 3
    assert pins.expire(100.0) == ()
    assert LEASE not in pins


def test_pins_end_at_their_deadline() -> None:
    pool = make_pool(4)
    pins = PinTable(nothing_leaves)
    pins.add(LEASE, hold(pool, chain("a", 2)), deadline=5.0)
    pins.add(LEASE, hold(pool, chain("b", 1)), deadline=6.0)
    pins.add(JOB, hold(pool, chain("c", 1)))
    assert pins.expire(4.9) == ()
    assert pins.expire(5.0) == (LEASE,)
    assert pool.held == 2
    assert pins.expire(9.0) == (LEASE,)
    assert (pins.count, pool.held) == (1, 1)
    assert pins.expire(1e9) == ()
    pins.close()
    assert pool.held == 0


def test_a_repeated_reservation_replaces_and_renews_the_first() -> None:
    pool = make_pool(4)
    with PinTable(nothing_leaves) as pins:
        pins.add(LEASE, hold(pool, chain("a", 2)), deadline=5.0)
        pins.replace(LEASE, pool.match(chain("a", 1)), deadline=8.0)
        assert (pins.count, pool.held, pool.inactive) == (1, 1, 1)
        assert pins.expire(5.0) == ()
        assert pins.expire(8.0) == (LEASE,)


def test_renewing_a_lease_without_end_needs_no_memory() -> None:
    pool = make_pool(4)
    other = PinOwner(PinKind.LEASE, "session 1 request 2")
    with PinTable(nothing_leaves) as pins:
        pins.add(other, hold(pool, chain("b", 1)), deadline=500.5)
        for step in range(1_000):
            pins.replace(LEASE, pool.match(chain("b", 1)), deadline=5_000.0 + step)
        assert pins.remembered < 200
        assert pins.expire(500.5) == (other,)
        assert pins.expire(5_998.0) == ()
        assert pins.expire(5_999.0) == (LEASE,)


def test_a_lease_becomes_the_pin_of_a_job() -> None:
    pool = make_pool(4)
    with PinTable(nothing_leaves) as pins:
        pins.add(LEASE, hold(pool, chain("a", 2)), deadline=5.0)
        assert pins.transfer(LEASE, JOB) == 1
        assert pins.expire(5.0) == ()
        assert pins.release(LEASE) == 0
        assert (pins.count, JOB in pins, LEASE in pins) == (1, True, False)
    assert pool.inactive == 2


def test_a_chain_that_was_pinned_block_by_block_leaves_from_its_tail() -> None:
    pool, pins = make_pool(8), PinTable(nothing_leaves)
    run = chain("a", 4)
    owner = PinOwner(PinKind.JOB, "load")
    with hold(pool, run):
        for key in run.keys():
            pins.add(owner, pool.match([key]))
    assert pins.release(owner) == 4
    assert [block.key for block in pool.next_victims(4)] == run.keys()[::-1]


def renewed(pins: PinTable) -> None:
    """The lease is renewed without the blocks that are not kept."""
    pins.replace(LEASE, hold(make_pool(1), chain("other", 1)), deadline=9.0)
    pins.release(LEASE)


@pytest.mark.parametrize(
    "end",
    [lambda pins: pins.release(LEASE), lambda pins: pins.expire(5.0), renewed, PinTable.close],
    ids=["release", "expire", "replace", "close"],
)
def test_blocks_that_are_not_kept_after_their_last_use_are_told_by_tier(end: Callable[[PinTable], None]) -> None:
    left: list[tuple[Tier, list[bytes]]] = []
    pins = PinTable(lambda tier, gone: left.append((tier, [facts.key for facts in gone])))
    upper, lower = make_pool(4), make_pool(2, tier=Tier.G3)
    for pool, name, blocks in ((upper, "a", 2), (lower, "b", 1), (upper, "c", 1)):
        held = hold(pool, chain(name, blocks))
        held.reset_on_release(True)
        pins.add(LEASE, held, deadline=5.0)
    with upper.match(chain("c", 1)):
        end(pins)
        assert sorted((tier, sorted(keys)) for tier, keys in left) == [
            (Tier.G2, sorted(chain("a", 2).keys())),
            (Tier.G3, chain("b", 1).keys()),
        ]
    assert (upper.free, lower.free, upper.inactive + lower.inactive) == (4, 2, 0)


def test_what_cannot_be_kept_is_refused_and_changes_nothing() -> None:
    pool = make_pool(4)
    with PinTable(nothing_leaves) as pins:
        pins.add(LEASE, hold(pool, chain("a", 2)), deadline=5.0)
        used = hold(pool, chain("b", 1))
        used.release()
        with hold(pool, chain("c", 1)) as sound:
            for refused in (
                lambda: pins.add(JOB, sound, math.nan),
                lambda: pins.replace(LEASE, sound, math.nan),
                lambda: pins.transfer(LEASE, JOB, math.nan),
            ):
                with pytest.raises(KernelError, match="a deadline is a time"):
                    refused()
            for refused in (lambda: pins.add(JOB, used), lambda: pins.replace(LEASE, used)):
                with pytest.raises(HandleConsumedError):
                    refused()
            assert len(sound) == 1
        assert (pins.count, LEASE in pins, JOB in pins, pool.held) == (1, True, False, 2)
        assert pins.expire(5.0) == (LEASE,)
