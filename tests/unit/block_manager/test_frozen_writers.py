"""What quarantine is for: a rank that stands still goes on at any moment, and its bytes must not become another's rows.

The frozen rank has begun its writes, so it touches payloads only: no header tells that it was there. Another engine
stores and loads meanwhile; every row that it is served is compared with the only right bytes.
"""

from collections.abc import Sequence
from enum import Enum

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.block_manager.rank_kit import digests, ranks_of
from tests.unit.block_manager.world import World

from blockyard.core.vocabulary import ItemStatus, Tier
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import payload_of

SLOTS, ROWS = 16, 2


class Moment(Enum):
    """When the frozen rank goes on for an instant."""

    BEFORE_SEAL = 0
    BEFORE_CHECK = 1
    BEFORE_READ = 2


def wrong_rows(schedule: Sequence[frozenset[Moment]], *, quarantine: bool) -> int:
    """Rows with wrong bytes that an engine was served in so many rounds of storing and loading."""
    world = World(g2=SLOTS, g4=False).ready()
    frozen = ranks_of(world, "frozen")
    granted = frozen.reserve(ROWS)
    frozen.end_session()
    if not quarantine:
        world.core.decide(lambda ranks: ranks.grants.ended(ranks.awaited))
    other = ranks_of(world, "other")

    def goes_on(moment: Moment, moments: frozenset[Moment]) -> None:
        for slot in granted.slots if moment in moments else ():
            world.tiers[Tier.G2].slots[slot].payload = payload_of(b"frozen".ljust(32))

    wrong = 0
    for number, moments in enumerate(schedule):
        run = chain(f"round {number}", ROWS)
        slots = other.reserve(ROWS)
        other.write(slots, run)
        goes_on(Moment.BEFORE_SEAL, moments)
        other.commit(slots, run)
        world.settle()
        goes_on(Moment.BEFORE_CHECK, moments)
        load = other.stage(run)
        world.settle()
        goes_on(Moment.BEFORE_READ, moments)
        places = world.core.ranks.staged.slots(load)
        for index, digest in enumerate(digests(run)):
            if world.outcomes[load].status[index] is ItemStatus.OK:
                wrong += other.seen(places[index][0]) != payload_of(digest)
        other.close(load)
    world.close()
    return wrong


@settings(max_examples=60)
@given(st.lists(st.frozensets(st.sampled_from(Moment)), min_size=SLOTS // ROWS, max_size=SLOTS))
def test_no_row_has_bytes_of_a_rank_that_stood_still(schedule: list[frozenset[Moment]]) -> None:
    assert wrong_rows(schedule, quarantine=True) == 0


def test_without_quarantine_rows_are_sealed_and_served_with_its_bytes() -> None:
    for moment in (Moment.BEFORE_SEAL, Moment.BEFORE_READ):
        schedule = [frozenset({moment})] * SLOTS
        assert wrong_rows(schedule, quarantine=False) > 0, moment
        assert wrong_rows(schedule, quarantine=True) == 0, moment
