"""Free rows: first returned, first granted, and rows taken by name are gone."""

from blockyard.core.free_rows import FreeRows
from blockyard.core.vocabulary import BlockId
from blockyard.testing.eviction_conformance import rows


def test_rows_leave_in_the_order_of_their_return() -> None:
    free = FreeRows(3)
    assert free.pop(2) == [0, 1]
    free.push(rows(1, 0))
    assert (list(free), len(free)) == ([2, 1, 0], 3)
    assert free.pop(3) == [2, 1, 0]
    assert len(free) == 0


def test_named_rows_are_gone_and_the_others_keep_their_order() -> None:
    free = FreeRows(5)
    free.remove(rows(3, 0))
    assert (list(free), len(free)) == ([1, 2, 4], 3)
    assert free.pop(2) == [1, 2]


def test_a_row_taken_by_name_returns_behind_all_others() -> None:
    free = FreeRows(3)
    free.remove(rows(1))
    free.push(rows(1))
    free.remove([BlockId(0)])
    free.push([BlockId(0)])
    assert (free.pop(3), len(free)) == ([2, 1, 0], 0)


def test_the_queue_goes_round() -> None:
    free = FreeRows(5)
    expected = [0, 1, 2, 3, 4]
    for count in (3, 4, 1, 5, 2):
        taken = free.pop(count)
        assert taken == expected[:count]
        free.push(taken)
        expected = expected[count:] + expected[:count]
        assert list(free) == expected
    free.remove(rows(expected[1]))
    assert free.pop(4) == [expected[0], *expected[2:]]
