"""Counts of uses."""

from blockyard.core.use_counts import DECAY_SECONDS, MOST_COUNTED, BlockKey, UseCounts
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


def test_what_was_seen_longest_ago_is_forgotten_first() -> None:
    counts = UseCounts(FakeClock(), limit=2)
    counts.saw([block(1), block(2), block(1), block(3)])
    assert [counts.count(block(number)) for number in (1, 2, 3)] == [2, 0, 1]
    assert len(counts) == 2
