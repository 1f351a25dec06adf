"""The frequency sketch: never too low, hardly ever too high, and it forgets.

Numbers are those of KVBM's behaviours.
"""

import hashlib
from time import process_time

import pytest

from blockyard.core.errors import KernelError
from blockyard.core.frequency import FrequencySketch
from blockyard.core.stored_key import StoredKey

SMALL = 1 << 18
"""In this size a sketch with indexes that depend on each other sees three uses of most blocks that were never used."""


def key(name: object) -> StoredKey:
    return StoredKey(hashlib.sha256(f"{name}".encode()).digest()[:16])


def test_one_hundred_thousand_blocks_used_once_leave_unseen_ones_at_zero() -> None:
    sketch = FrequencySketch(SMALL)
    sketch.touch([key(number) for number in range(100_000)])
    unseen = sketch.estimate([key(f"unseen {number}") for number in range(20_000)])
    # A tenth of each row is in use, so four independent counters are all in use for one key of ten thousand.
    assert sum(unseen) / len(unseen) < 0.001
    assert max(unseen) < 3
    seen = sketch.estimate([key(number) for number in range(20_000)])
    assert min(seen) >= 1
    assert sum(seen) / len(seen) < 1.001


@pytest.mark.parametrize("touches", range(1, 16))
def test_34_up_to_15_uses_are_counted(touches: int) -> None:
    sketch = FrequencySketch(64)
    sketch.touch([key("a")] * touches)
    assert sketch.estimate([key("a")]) == [touches]


@pytest.mark.parametrize("touches", [16, 128, 129, 1_000])
def test_34_a_counter_stops_at_15(touches: int) -> None:
    sketch = FrequencySketch(1_024)
    sketch.touch([key("a")] * touches)
    assert sketch.estimate([key("a"), key("b")]) == [15, 0]


def test_uses_count_alike_in_one_batch_and_one_by_one() -> None:
    together, apart = FrequencySketch(256), FrequencySketch(256)
    names = [key(number % 37) for number in range(400)]
    together.touch(names)
    for name in names:
        apart.touch([name])
    assert together.estimate(names) == apart.estimate(names)


def test_35_after_ten_uses_per_key_of_the_capacity_all_counts_are_halved_once() -> None:
    sketch = FrequencySketch(32)
    sketch.touch([key("a")] * 8)
    others = [key(number) for number in range(24)]
    sketch.touch(others * 12)
    assert sketch.halvings == 0
    assert sketch.estimate([key("a")]) == [8]
    sketch.touch(others[: 10 * 32 - 8 - 12 * 24])
    assert sketch.halvings == 1
    assert sketch.estimate([key("a")]) == [4]
    sketch.touch([key("a")])
    assert sketch.halvings == 1


def test_uses_of_blocks_that_are_counted_to_the_end_do_not_wear_the_sketch_out() -> None:
    sketch = FrequencySketch(8)
    sketch.touch([key("a")] * 10_000)
    assert sketch.halvings == 0


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_35_the_smallest_sketches_count_and_forget(capacity: int) -> None:
    sketch = FrequencySketch(capacity)
    sketch.touch([key("a")] * (10 * capacity - 1))
    assert (sketch.estimate([key("a")]), sketch.halvings) == ([min(15, 10 * capacity - 1)], 0)
    for number in range(200):
        sketch.touch([key(number)])
    assert sketch.halvings >= 1


def test_nothing_is_asked_and_counted_for_nothing() -> None:
    sketch = FrequencySketch(4)
    sketch.touch([])
    assert sketch.estimate([]) == []


@pytest.mark.parametrize("capacity", [0, -1, (1 << 30) + 1])
def test_a_capacity_that_no_index_can_name_is_refused(capacity: int) -> None:
    with pytest.raises(KernelError, match="sketch"):
        FrequencySketch(capacity)


def test_one_block_named_over_and_over_costs_no_more_than_as_many_blocks() -> None:
    def seconds_of(names: list[StoredKey]) -> float:
        sketch = FrequencySketch(1_024)
        start = process_time()
        sketch.touch(names)
        return process_time() - start

    many = [key(number) for number in range(20_000)]
    assert min(seconds_of(many[:1] * len(many)) for _ in range(3)) < 2 * min(seconds_of(many) for _ in range(3))
