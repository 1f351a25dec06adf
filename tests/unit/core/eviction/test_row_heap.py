"""Rows by rank: places that are lost, kept and given back."""

import random

import pytest

from blockyard.core.eviction.row_heap import RowHeap
from blockyard.core.vocabulary import BlockId
from blockyard.testing.eviction_conformance import rows


def test_smaller_ranks_go_first_and_equal_ones_in_the_order_in_which_they_came() -> None:
    heap = RowHeap(6)
    heap.push(rows(0, 1, 2, 3), [7, 5, 7, 5])
    assert list(heap) == [1, 3, 0, 2]
    assert heap.take(9) == [1, 3, 0, 2]
    assert len(heap) == 0


def test_a_row_comes_back_as_the_last_of_its_rank_or_to_the_place_it_had() -> None:
    heap = RowHeap(4)
    heap.push(rows(0, 1, 2), [5, 5, 5])
    heap.discard(rows(0))
    heap.restore(rows(0), [5])
    assert list(heap) == [0, 1, 2]
    heap.discard(rows(0))
    heap.push(rows(0), [5])
    assert heap.take(3) == [1, 2, 0]


def test_a_row_that_was_restored_is_given_once() -> None:
    heap = RowHeap(3)
    heap.push(rows(0, 1), [1, 2])
    for _ in range(5):
        heap.discard(rows(0))
        heap.restore(rows(0), [1])
    assert (len(heap), heap.take(5), heap.take(5)) == (2, [0, 1], [])


def test_rows_of_a_rank_from_some_limit_on_are_left() -> None:
    heap = RowHeap(4)
    heap.push(rows(0, 1, 2), [1, 2, 3])
    assert heap.take(9, below=3) == [0, 1]
    assert heap.take(9, below=3) == []
    assert heap.take(9) == [2]


def test_rows_that_do_not_stand_here_are_not_taken_out() -> None:
    heap = RowHeap(2)
    heap.push(rows(0), [1])
    heap.discard(rows(0, 0, 1))
    assert (len(heap), list(heap)) == (0, [])


@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_with_a_sorted_list_and_does_not_grow_with_time(seed: int) -> None:
    chance = random.Random(seed)
    heap, model, number = RowHeap(32), dict[BlockId, tuple[int, int]](), 0
    places: dict[BlockId, tuple[int, int]] = {}
    for _ in range(3_000):
        row = BlockId(chance.randrange(32))
        if row in model:
            heap.discard([row])
            del model[row]
        elif row in places and chance.random() < 0.5:
            model[row] = places[row]
            heap.restore([row], [places[row][0]])
        else:
            number += 1
            model[row] = places[row] = (chance.randrange(4), number)
            heap.push([row], [places[row][0]])
        if chance.random() < 0.05:
            expected = sorted(model, key=model.__getitem__)[:3]
            assert heap.take(3) == expected
            for taken in expected:
                del model[taken]
    assert list(heap) == sorted(model, key=model.__getitem__)
    assert len(heap._entries) <= 2 * 32 + 256
