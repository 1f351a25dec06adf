"""Rows of keys: neighbours that were announced together are one run, whatever came and went before."""

import gc
import random
from array import array
from collections.abc import Sequence

from blockyard.core.holder_rows import HolderRows, Span
from blockyard.core.vocabulary import ContentKey


def chain(name: int, blocks: int) -> list[ContentKey]:
    return [ContentKey(name.to_bytes(8, "big") + place.to_bytes(8, "big")) for place in range(blocks)]


def store(rows: HolderRows, keys: Sequence[ContentKey], number: int = 1) -> None:
    rows.append(keys, array("I", (number,)) * len(keys))


def forget(rows: HolderRows, keys: Sequence[ContentKey]) -> None:
    """As the table does."""
    done = 0
    for span in list(rows.spans(keys)):
        rows.leave(span.row, keys[done : done + span.length])
        done += span.length
    while (page := rows.sparsest()) is not None:
        rows.empty(page)


def test_what_was_announced_together_is_one_span_over_pages_and_lines() -> None:
    rows = HolderRows(page=16)
    store(rows, chain(1, 200))

    assert list(rows.spans(chain(1, 200)[:64])) == [Span(0, 1, 64)]
    assert [span.length for span in rows.spans(chain(1, 200))] == [64, 128, 8]
    assert list(rows.spans(chain(1, 200)[100:150])) == [Span(100, 1, 50)]


def test_span_ends_where_holders_change_where_a_row_is_dead_and_where_the_question_goes_on_otherwise() -> None:
    rows = HolderRows(page=16)
    keys = chain(1, 20)
    store(rows, keys)
    rows.renumber(4, 3, 2)
    rows.leave(9, keys[9:10])

    assert list(rows.spans(keys[:9])) == [Span(0, 1, 4), Span(4, 2, 3), Span(7, 1, 2)]
    assert list(rows.spans(keys[8:12])) == [Span(8, 1, 1), Span(-1, 0, 1), Span(10, 1, 1), Span(11, 1, 1)]
    assert list(rows.spans([*keys[10:19], keys[0]])) == [Span(10, 1, 9), Span(0, 1, 1)]


def test_key_that_came_back_is_found_behind_its_dead_row() -> None:
    rows = HolderRows(page=16)
    keys = chain(1, 4)
    store(rows, keys)
    rows.leave(1, keys[1:2])
    store(rows, keys[1:2], 3)

    assert list(rows.spans(keys)) == [Span(0, 1, 1), Span(4, 3, 1), Span(2, 1, 1), Span(3, 1, 1)]


def test_bytes_of_two_neighbours_are_not_the_key_that_they_look_like() -> None:
    rows = HolderRows(page=16)
    first, second, third = bytes(8), b"\1" * 8, b"\2" * 8
    between = ContentKey(second + third)
    store(rows, [ContentKey(first + second), ContentKey(third + first), between])

    assert list(rows.spans([between])) == [Span(2, 1, 1)]


def test_pages_without_keys_are_used_anew() -> None:
    rows = HolderRows(page=16)
    for turn in range(50):
        store(rows, chain(turn, 40))
        forget(rows, chain(turn, 40))

    assert len(rows) == 0
    assert rows.pages <= 8


def test_rows_grow_by_a_half_at_most_and_chains_stay_together_when_others_leave_block_by_block() -> None:
    page = 256
    rows = HolderRows(page)
    order = random.Random(5)
    held = {name: chain(name, 32) for name in range(100)}
    for keys in held.values():
        store(rows, keys)
    for name in range(100, 1_000):
        leaving = order.choice(sorted(held))
        held[name] = chain(name, 32)
        store(rows, held[name])
        for key in reversed(held.pop(leaving)):
            forget(rows, [key])

    assert len(rows) == 3_200
    assert rows.pages * page <= 1.5 * 3_200 + 4 * page
    spans = [list(rows.spans(keys)) for keys in held.values()]
    assert all(sum(span.length for span in found) == 32 for found in spans)
    assert sum(map(len, spans)) < 2 * len(spans), "a chain lies in few runs"


def test_collector_of_garbage_looks_at_no_key() -> None:
    rows = HolderRows(page=512)
    store(rows, chain(1, 2_000))

    tracked = {type(part) for part in gc.get_referents(rows) if gc.is_tracked(part)}
    assert tracked <= {type, array, set}, "a dict that refers to anything but bytes and numbers is tracked"
