"""Rows of keys: neighbours that were announced together are one run, whatever came and went before."""

import gc
import random
from array import array
from collections.abc import Sequence

import pytest

from blockyard.core.errors import RequestError
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
    moves = 0
    while (page := rows.sparsest()) is not None:
        rows.empty(page)
        moves += 1
        assert moves < 1_000, "it does not end"


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
    assert list(rows.spans(keys[8:12])) == [Span(8, 1, 1), Span(-1, 0, 1), Span(10, 1, 2)]
    assert list(rows.spans([*keys[10:19], keys[0]])) == [Span(10, 1, 9), Span(0, 1, 1)]


def test_key_that_came_back_is_found_behind_its_dead_row() -> None:
    rows = HolderRows(page=16)
    keys = chain(1, 4)
    store(rows, keys)
    rows.leave(1, keys[1:2])
    store(rows, keys[1:2], 3)

    assert list(rows.spans(keys)) == [Span(0, 1, 1), Span(4, 3, 1), Span(2, 1, 2)]


def test_key_asked_for_twice_is_not_taken_for_its_dead_row() -> None:
    rows = HolderRows(page=4)
    first, second, new = chain(1, 4), chain(2, 4), chain(3, 1)
    store(rows, first)
    store(rows, second)
    rows.leave(0, first)
    store(rows, [*new, first[2]])

    assert numbers_of(rows, [second[3], *new, first[2], first[2]]) == [1] * 4


def test_bytes_of_two_neighbours_are_not_the_key_that_they_look_like() -> None:
    rows = HolderRows(page=16)
    first, second, third = bytes(8), b"\1" * 8, b"\2" * 8
    between = ContentKey(second + third)
    store(rows, [ContentKey(first + second), ContentKey(third + first), between])

    assert list(rows.spans([between])) == [Span(2, 1, 1)]


def numbers_of(rows: HolderRows, keys: Sequence[ContentKey]) -> list[int]:
    """The number of each, after a look at whether the spans name the rows of these keys."""
    numbers: list[int] = []
    for span in rows.spans(keys):
        asked = keys[len(numbers) : len(numbers) + span.length]
        assert (span.row < 0) == (span.number == 0)
        assert span.row < 0 or rows.keys(span.row, span.length) == list(asked)
        numbers += [span.number] * span.length
    assert numbers == [number for piece in rows.pieces(keys) for number, length in piece.sets for _ in range(length)]
    return numbers


def test_rows_are_found_whatever_came_and_went_in_batches_of_any_size() -> None:
    order = random.Random(11)
    halves = [bytes([letter]) * 8 for letter in range(20)]
    names = [ContentKey(first + second) for first in halves for second in halves]
    rows = HolderRows(page=16)
    held: dict[ContentKey, int] = {}
    for turn in range(800):
        begin, length = order.randrange(len(names)), order.choice((1, 1, 1, 3, 20, 100))
        batch = names[begin : begin + length]
        if order.random() < 0.55:
            new = [key for key in batch if key not in held]
            store(rows, new, 1 + turn % 3)
            held.update(dict.fromkeys(new, 1 + turn % 3))
        else:
            gone = [key for key in batch if key in held]
            forget(rows, gone)
            for key in gone:
                del held[key]
        begin = order.randrange(len(names))
        asked = order.choice((names[begin : begin + 150], order.choices(names, k=100), names[begin::-1]))
        assert numbers_of(rows, asked) == [held.get(key, 0) for key in asked]


def test_lookups_of_keys_that_came_alone_cost_no_more_than_some_steps() -> None:
    """Chains that grew in turns, a block at a time."""
    rows = HolderRows(page=512)
    chains = [chain(name, 64) for name in range(8)]
    for place in range(64):
        for keys in chains:
            store(rows, keys[place : place + 1])

    assert [len(list(rows.pieces(keys))) for keys in chains] == [2] * 8


def test_keys_of_other_widths_are_refused() -> None:
    rows = HolderRows(page=16)
    store(rows, chain(1, 20))

    with pytest.raises(RequestError, match="width"):
        list(rows.spans([*chain(1, 2), ContentKey(b"short")]))


def test_rows_without_any_key_know_none() -> None:
    rows = HolderRows(page=16)

    assert list(rows.spans(chain(1, 3))) == [Span(-1, 0, 1)] * 3


def test_page_whose_rows_are_given_out_is_not_the_one_to_be_emptied() -> None:
    rows = HolderRows(page=4)
    keys = chain(1, 21)
    store(rows, keys)
    for begin in range(0, 16, 4):
        rows.leave(begin, keys[begin : begin + 2])
    assert rows.sparsest() is None
    rows.leave(18, keys[18:20])
    rows.leave(16, keys[16:17])
    rows.leave(2, keys[2:3])
    rows.leave(6, keys[6:7])

    assert rows.sparsest() == 0, "the last page has one key as well, and takes in what moves"
    rows.leave(20, keys[20:])
    assert rows.sparsest() == 0


def test_moved_keys_leave_their_page_without_any() -> None:
    rows = HolderRows(page=4)
    keys = chain(1, 9)
    store(rows, keys)
    rows.leave(0, keys[:2])

    rows.empty(0)

    assert rows.in_page(0) == []
    assert list(rows.spans(keys[2:4])) == [Span(9, 1, 2)]
    store(rows, chain(2, 3))
    assert rows.pages == 3
    assert list(rows.spans(chain(2, 3))) == [Span(11, 1, 1), Span(0, 1, 2)], "it is used anew"


def test_page_that_lost_its_keys_while_rows_were_given_out_is_used_anew() -> None:
    rows = HolderRows(page=4)
    for name in range(10):
        store(rows, chain(name, 4))
        rows.leave(0, chain(name, 4))

    assert rows.pages == 1
    assert rows.sparsest() is None


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
