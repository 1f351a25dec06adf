"""Counts of uses."""

import random

from blockyard.core.use_counts import DECAY_SECONDS, MOST_COUNTED, MOST_REMEMBERED, BlockKey, UseCounts
from blockyard.core.vocabulary import ContentKey, GroupId
from blockyard.testing.clock import FakeClock


def block(number: int, group: int = 0) -> BlockKey:
    return ContentKey(number.to_bytes(16, "big")), GroupId(group)


def test_each_further_use_doubles_the_count_up_to_a_limit() -> None:
    counts = UseCounts(FakeClock())
    seen = []
    for _ in range(9):
        counts.saw([block(1)])
        seen.append(counts.count(block(1)))
    assert seen == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    assert seen[-1] == MOST_COUNTED
    assert counts.count(block(1, group=1)) == 0


def test_time_takes_one_off_per_period() -> None:
    clock = FakeClock()
    counts = UseCounts(clock)
    counts.saw([block(1)] * 3)
    left = []
    for _ in range(6):
        left.append(counts.count(block(1)))
        clock.advance(DECAY_SECONDS)
    assert left == [4, 3, 2, 1, 0, 0]


def test_a_use_between_two_periods_does_not_put_the_next_off() -> None:
    clock = FakeClock()
    counts = UseCounts(clock)
    counts.saw([block(1)] * 2)
    clock.advance(DECAY_SECONDS * 0.75)
    counts.saw([block(1)])
    assert counts.count(block(1)) == 4
    clock.advance(DECAY_SECONDS * 0.25)
    assert counts.count(block(1)) == 3


def test_of_what_was_seen_once_the_oldest_is_forgotten_first() -> None:
    counts = UseCounts(FakeClock(), limit=2)
    counts.saw([block(1), block(2), block(1), block(3)])
    assert [counts.count(block(number)) for number in (1, 2, 3)] == [2, 0, 1]
    assert len(counts) == 2
    counts.saw([block(3), block(4), block(4)])
    assert [counts.count(block(number)) for number in (1, 3, 4)] == [2, 2, 0], "one sight gives way to two"
    assert UseCounts(FakeClock())._limit == MOST_REMEMBERED


def test_what_counts_nothing_any_more_takes_no_memory() -> None:
    clock = FakeClock()
    counts = UseCounts(clock)
    counts.saw([block(number) for number in range(100)])
    counts.saw([block(1)] * 2)
    assert len(counts) == 100
    clock.advance(DECAY_SECONDS)
    counts.saw([block(200)])
    assert len(counts) == 2
    clock.advance(3 * DECAY_SECONDS)
    counts.saw([block(300)])
    assert len(counts) == 1


def test_counts_are_those_of_a_table_that_forgets_nothing() -> None:
    clock, chance = FakeClock(), random.Random(7)
    counts, plain = UseCounts(clock), dict[BlockKey, tuple[int, float]]()

    def decayed(key: BlockKey) -> tuple[int, float]:
        count, since = plain.get(key, (0, clock.monotonic()))
        steps = int((clock.monotonic() - since) / DECAY_SECONDS)
        return max(count - steps, 0), since + steps * DECAY_SECONDS

    for _ in range(3_000):
        key = block(chance.randrange(40))
        assert counts.count(key) == decayed(key)[0]
        counts.saw([key])
        count, since = decayed(key)
        plain[key] = (min(2 * count, MOST_COUNTED), since) if count else (1, clock.monotonic())
        clock.advance(chance.choice((0.0, 1.0, 60.0)))
