"""TIDE: what is used often stays, as far as the traffic makes that worth while; who comes back is known."""

import hashlib
from collections.abc import Iterable
from itertools import islice
from time import process_time

import pytest

from blockyard.core.eviction.half_life_race import HalfLifeRace
from blockyard.core.eviction.tide import TidePolicy
from blockyard.core.eviction.tide_history import (
    HALF_LIVES,
    NEVER_USED,
    History,
    decay,
    keep_value,
    keep_values,
    used_again,
    used_once,
)
from blockyard.core.vocabulary import BlockId
from blockyard.testing.row_columns import NamedRows

CAPACITY = 64
ONCE: History = used_once(1.0)


def rows(*numbers: int) -> list[BlockId]:
    return [BlockId(number) for number in numbers]


def use(policy: TidePolicy, *numbers: int) -> None:
    policy.touch(rows(*numbers))
    policy.remove(rows(*numbers))
    policy.insert(rows(*numbers))


def race(labels: Iterable[int]) -> float:
    """The half-life that leads after single blocks were used in this order, each as if it entered then."""
    contest = HalfLifeRace(CAPACITY)
    histories: dict[int, History] = {}
    for created, label in enumerate(labels):
        now = created / CAPACITY
        before = histories.get(label)
        histories[label] = used_again(before, now, decay(now - before[0])) if before else used_once(now)
        contest.use([hashlib.sha256(str(label).encode()).digest()], [histories[label]], created)
    return contest.half_life


def test_a_block_that_was_used_often_outlives_newer_ones() -> None:
    policy = TidePolicy(NamedRows(4))
    policy.touch(rows(0, 1))
    policy.insert(rows(0))
    policy.insert(rows(1))
    for _ in range(3):
        use(policy, 0)
    policy.touch(rows(2))
    policy.insert(rows(2))
    assert policy.take(3) == [1, 2, 0]


def test_a_block_that_comes_back_in_another_row_goes_on_with_its_history() -> None:
    columns = NamedRows(3)
    columns.name_chain(rows(0), "known")
    policy = TidePolicy(columns)
    policy.touch(rows(0))
    policy.touch(rows(0, 1))
    policy.insert(rows(0))
    policy.forget(policy.take(1))
    columns.name_chain(rows(2), "known")
    columns.name_chain(rows(0), "new")
    policy.touch(rows(2, 0))
    policy.insert(rows(2))
    policy.insert(rows(0, 1))
    assert policy.take(3)[-1] == 2


def test_blocks_found_at_the_start_count_as_used_once_then() -> None:
    policy = TidePolicy(NamedRows(4))
    policy.insert(rows(3, 2))
    policy.touch(rows(0))
    policy.touch(rows(1))
    policy.insert(rows(0))
    policy.insert(rows(1))
    assert set(policy.take(3)) == {0, 2, 3}


def in_runs_of_100(capacity: int) -> TidePolicy:
    policy = TidePolicy(NamedRows(capacity))
    for start in range(0, capacity, 100):
        run = rows(*range(start, start + 100))
        policy.touch(run)
        policy.insert(run)
    return policy


def test_what_is_read_of_the_order_is_what_is_taken_also_with_holes() -> None:
    policy = in_runs_of_100(1_000)
    policy.remove(rows(*range(0, 1_000, 3)))
    use(policy, *range(1, 500, 6))
    order = list(policy)
    assert len(order) == len(policy) == 666
    assert list(islice(policy, 70)) == order[:70]
    assert policy.take(1_000) == order


def test_the_next_victims_are_read_without_a_look_at_all_rows() -> None:
    def seconds_of_a_look(capacity: int) -> float:
        policy = in_runs_of_100(capacity)
        start = process_time()
        assert len(list(islice(policy, 10))) == 10
        return process_time() - start

    few = min(seconds_of_a_look(2_000) for _ in range(5))
    many = min(seconds_of_a_look(64_000) for _ in range(3))
    assert many < 10 * few, "thirty-two times as many rows should hardly take longer"


def test_a_load_with_scans_is_led_by_a_longer_half_life_than_one_that_moves_on() -> None:
    hot_and_scans = [label for number in range(3000) for label in (number % 40, 1000 + number, 10_000 + number)]
    window = [number // 60 * 20 + number * 7 % 30 for number in range(9000)]
    assert race(hot_and_scans) > race(window)
    assert race(hot_and_scans) >= 1.0


@pytest.mark.parametrize("capacity", [1, 2, 100, 5000, 100_000])
def test_the_race_samples_more_sparsely_the_larger_the_tier(capacity: int) -> None:
    names = [hashlib.sha256(str(number).encode()).digest() for number in range(4000)]
    taken = sum(name is not None for name in HalfLifeRace(capacity).sample(names))
    wanted = min(len(names), max(len(names) // 64, len(names) * 256 // capacity))
    assert wanted / 2 < taken <= 2.2 * wanted


def test_values_of_many_are_those_of_each() -> None:
    histories = [ONCE, used_again(ONCE, 1.5, decay(0.5)), used_again(ONCE, 40.0, decay(39.0))]
    table = keep_values(histories)
    for index in range(len(HALF_LIVES)):
        assert list(table[index]) == pytest.approx([keep_value(history, index) for history in histories])
    assert keep_value(NEVER_USED, 0) < keep_value(ONCE, 0)


def test_half_of_a_use_is_left_after_a_half_life() -> None:
    twice = used_again(ONCE, 1.0, decay(0.0))
    for index, half_life in enumerate(HALF_LIVES):
        assert decay(half_life)[index] == pytest.approx(0.5)
        assert twice[index + 1] == pytest.approx(1.0625)
        assert used_again(twice, 1.0 + half_life, decay(half_life))[index + 1] == pytest.approx(1.0 + 1.0625 / 2)


def test_a_first_use_weighs_a_sixteenth_of_another() -> None:
    for index in range(len(HALF_LIVES)):
        assert ONCE[index + 1] * 16 == used_again(NEVER_USED, 1.0, decay(0.0))[index + 1]
