"""Rows of the keys of one group: what was announced together lies side by side, so a lookup answers by runs of rows.

A question to a dict meets cold memory several times for each key. Here the dict answers for the first key of a run; the
rows behind it are compared as bytes with the keys asked for next, and their sets of holders are read as a slice. ::

    key ──► index ──► line of rows ──► row:  names    | key | key | key | ...   16 bytes each
                                             numbers  |  7  |  7  |  0  | ...   sets of holders, 0 for a dead row

Where runs are short, the dict answers for many keys, in a few calls, and the rows that follow are looked at together.
Rows are given out in order, page by page, and never one by one for a second time: a page without keys is used anew, and
where a third of the rows is dead, the sparsest page is to be emptied, its keys move behind the last ones. So neighbours
stay neighbours, whatever leaves between them, and removing a key costs at most the moving of two, on the average.
Memory: beside the key and its entry, 20 bytes per row and 32 per line. Nothing of it is looked at by the collector of
garbage.
Invariants: a key of the index has exactly one row with a number, in the line that the index names, and no dead row with
its bytes comes before it there. Keys have 16 bytes.
Threading: the owner thread of the index.
"""

from array import array
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count, groupby, repeat, takewhile
from operator import itemgetter, sub
from typing import Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from blockyard.core.errors import RequestError
from blockyard.core.vocabulary import KEY_BYTES, ContentKey

_NO_ROW: Final = -1
_LINE: Final = 64
"""Most rows of a line, which are given out together: a key is searched among those of its line."""
_LINE_BYTES: Final = _LINE * KEY_BYTES
_WINDOW: Final = 64
_SHORT: Final = 16
"""After a run of fewer rows, the index answers for the next keys."""
MAX_PAGE: Final = 4_096
_FREE: Final = 0xFFFF
"""Stands for the number of keys of a page that is not in use, so that it is never the sparsest."""
_KEY: Final = np.dtype(f"V{KEY_BYTES}")


class Span(NamedTuple):
    """Adjacent rows with the same set of holders."""

    row: int
    """The first; below 0 where the key is not known, and then ``length`` is 1."""
    number: int
    """Of the set of holders; 0 where the key is not known."""
    length: int


class Piece(NamedTuple):
    """Consecutive keys of a question."""

    rows: Sequence[int]
    """One per key; below 0 where it is not known."""
    sets: list[tuple[int, int]]
    """Numbers of sets of holders, each with how many keys in a row have it; 0 where they are not known."""


_UNKNOWN: Final = Piece((_NO_ROW,), [(0, 1)])


@final
class HolderRows:
    """Keys of one group, each with the number of its set of holders."""

    __slots__ = (
        "_end",
        "_free",
        "_index",
        "_live",
        "_names",
        "_next",
        "_numbers",
        "_open",
        "_page",
        "_used",
    )

    def __init__(self, page: int) -> None:
        """Start with nothing, and with ``page`` rows per page, at most ``MAX_PAGE``."""
        self._page: Final = page
        self._index: dict[ContentKey, int] = {}
        """First row of the line of a key; keys of a line share one object."""
        self._names = bytearray()
        self._numbers = array("I")
        self._live = array("H")
        """Keys per page."""
        self._free: set[int] = set()
        self._used = 0
        """Rows given out, in pages that are in use."""
        self._open = self._next = self._end = 0
        """Page whose rows are given out, the next of them, and the first behind them."""
        self._open_page(0)

    def __len__(self) -> int:
        """Keys."""
        return len(self._index)

    @property
    def pages(self) -> int:
        """Pages, those without keys included."""
        return len(self._live)

    # --- questions ----------------------------------------------------------------------------------------------------
    def knows_none(self, keys: Collection[ContentKey]) -> bool:
        """Whether all of these are new."""
        return self._index.keys().isdisjoint(keys)

    def pieces(self, keys: Sequence[ContentKey]) -> Iterator[Piece]:
        """Where these are, in their order; read as far as wanted, and without changes in between."""
        done, window = 0, _WINDOW
        while done < len(keys):
            row = self._row(keys[done])
            piece = _UNKNOWN if row < 0 else self._run(row, keys[done : done + window])
            yield piece
            length = len(piece.rows)
            done += length
            if length < _SHORT and done < len(keys):
                yield self._gathered(keys[done : done + _WINDOW])
                done += _WINDOW
            window = 2 * max(length, _SHORT)

    def spans(self, keys: Sequence[ContentKey]) -> Iterator[Span]:
        """The same by adjacent rows."""
        for rows, sets in self.pieces(keys):
            done = 0
            for number, length in sets:
                yield from _adjacent(rows[done : done + length], number)
                done += length

    def in_page(self, page: int) -> list[Span]:
        """What lies in a page."""
        spans: list[Span] = []
        row = page * self._page
        for number, run in groupby(self._numbers[row : row + self._page]):
            length = len(list(run))
            if number:
                spans.append(Span(row, number, length))
            row += length
        return spans

    def keys(self, row: int, length: int) -> list[ContentKey]:
        """The keys of adjacent rows."""
        keys: list[ContentKey] = np.frombuffer(self._names, _KEY, length, row * KEY_BYTES).tolist()
        return keys

    def sparsest(self) -> int | None:
        """The page that is to be emptied, while too many rows are dead."""
        dead = self._used - len(self._index)
        if 2 * dead <= len(self._index) + 2 * self._page:
            return None
        live = np.array(self._live)
        live[self._open] = _FREE
        return int(live.argmin())

    def _row(self, key: ContentKey) -> int:
        line = self._index.get(key)
        if line is None:
            return _NO_ROW
        at = line * KEY_BYTES
        end = at + _LINE_BYTES
        at = self._names.index(key, at, end)
        while at % KEY_BYTES:  # bytes of two neighbours may look the same
            at = self._names.index(key, at + 1, end)
        return at // KEY_BYTES

    def _run(self, row: int, keys: Sequence[ContentKey]) -> Piece:
        """Rows from ``row`` on that have these keys, the first of them at least."""
        at = row * KEY_BYTES
        if len(keys) > 1 and not self._names.startswith(keys[1], at + KEY_BYTES):
            return Piece((row,), [(self._numbers[row], 1)])
        asked = _joined(keys)
        known = self._names[at : at + len(asked)]
        same = len(keys) if known == asked else _same_keys(known, asked)
        numbers = self._numbers[row : row + same]
        first = numbers[0]
        if numbers.tobytes() == numbers[:1].tobytes() * same:
            return Piece(range(row, row + same), [(first, same)])
        sets = list(takewhile(itemgetter(0), _sets(numbers)))  # up to a dead row
        return Piece(range(row, row + sum([length for _, length in sets])), sets)

    def _gathered(self, keys: Sequence[ContentKey]) -> Piece:
        """Rows of these wherever they are, without a step in Python for each."""
        asked = _joined(keys)
        lines = np.fromiter(map(self._index.get, keys, repeat(_NO_ROW)), np.int64, len(keys))
        rows = _counted(lines)
        names = np.frombuffer(self._names, _KEY).take(rows, mode="clip")
        numbers = np.frombuffer(self._numbers, np.uint32).take(rows, mode="clip")
        if names.tobytes() != asked or not numbers.all():
            rows = self._searched(keys, lines)
            numbers = np.where(rows < 0, 0, np.frombuffer(self._numbers, np.uint32)[rows])
        return Piece(rows.tolist(), list(_sets(numbers.tolist())))

    def _searched(self, keys: Sequence[ContentKey], lines: NDArray[np.int64]) -> NDArray[np.int64]:
        begins = (lines * KEY_BYTES).tolist()
        ends = map(_LINE_BYTES.__add__, begins)
        found = np.fromiter(map(self._names.find, keys, begins, ends), np.int64, len(keys))
        rows = found // KEY_BYTES
        for place in np.flatnonzero(found % KEY_BYTES).tolist():
            rows[place] = self._row(keys[place])
        rows[lines < 0] = _NO_ROW
        return rows

    # --- changes ------------------------------------------------------------------------------------------------------
    def append(self, keys: Sequence[ContentKey], numbers: "array[int]") -> None:
        """Give rows to keys that are new, or that move; with the number of each."""
        done = 0
        while done < len(keys):
            if self._next == self._end:
                self._turn_page()
            part = slice(done, done + self._end - self._next)
            self._fill(keys[part], numbers[part])
            done = part.stop

    def renumber(self, row: int, length: int, number: int) -> None:
        """Give adjacent keys another set of holders."""
        self._numbers[row : row + length] = array("I", (number,)) * length

    def leave(self, row: int, keys: Sequence[ContentKey]) -> None:
        """Forget these, which are those of adjacent rows."""
        deque(map(self._index.__delitem__, keys), maxlen=0)
        self._vacate(row, len(keys))

    def empty(self, page: int) -> None:
        """Move the keys of a page behind the last ones."""
        begin = page * self._page
        spans = self.in_page(page)
        keys = [key for span in spans for key in self.keys(span.row, span.length)]
        numbers = array("I", filter(None, self._numbers[begin : begin + self._page]))
        for span in spans:
            self._vacate(span.row, span.length)
        self.append(keys, numbers)

    # --- pages --------------------------------------------------------------------------------------------------------
    def _fill(self, keys: Sequence[ContentKey], numbers: "array[int]") -> None:
        row, end = self._next, self._next + len(keys)
        self._names[row * KEY_BYTES : end * KEY_BYTES] = b"".join(keys)
        self._numbers[row:end] = numbers
        self._live[self._open] += len(keys)
        self._used += len(keys)
        self._next = end
        for done in range(0, len(keys), _LINE):
            self._index.update(zip(keys[done : done + _LINE], repeat(row + done)))

    def _vacate(self, row: int, length: int) -> None:
        self._numbers[row : row + length] = array("I", (0,)) * length
        end = row + length
        while row < end:
            page = row // self._page
            part = min(end, (page + 1) * self._page) - row
            self._live[page] -= part
            if not self._live[page] and page != self._open:
                self._close(page)
            row += part

    def _close(self, page: int) -> None:
        self._live[page] = _FREE
        self._free.add(page)
        self._used -= self._page

    def _turn_page(self) -> None:
        if not self._live[self._open]:
            self._close(self._open)
        page = self.pages
        if self._free:
            page = self._open + 1 if self._open + 1 in self._free else self._free.pop()
            self._free.discard(page)
        self._open_page(page)

    def _open_page(self, page: int) -> None:
        """Give out the rows of a page that has no keys, or of the next new one."""
        if page == self.pages:
            self._live.append(0)
            self._names += bytes(self._page * KEY_BYTES)
            self._numbers.frombytes(bytes(self._page * self._numbers.itemsize))
        self._live[page] = 0
        self._open = page
        self._next = page * self._page
        self._end = self._next + self._page


def _joined(keys: Sequence[ContentKey]) -> bytes:
    asked = b"".join(keys)
    if len(asked) != len(keys) * KEY_BYTES:
        raise RequestError("keys of blocks have another width", keys=len(keys), bytes=len(asked), wanted=KEY_BYTES)
    return asked


def _same_keys(known: bytearray, asked: bytes) -> int:
    """How many keys are the same, where the first is and not all are."""
    same, different = 1, len(asked) // KEY_BYTES
    while different - same > 1:
        middle = (same + different) // 2
        part = slice(same * KEY_BYTES, middle * KEY_BYTES)
        if known[part] == asked[part]:
            same = middle
        else:
            different = middle
    return same


def _counted(lines: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where keys are if each line was asked for from its first row on, one after the other."""
    places = np.arange(len(lines))
    begins = places.copy()
    begins[1:][lines[1:] == lines[:-1]] = 0
    return lines + places - np.maximum.accumulate(begins)


def _sets(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    for number, run in groupby(numbers):
        yield number, len(list(run))


def _adjacent(rows: Sequence[int], number: int) -> Iterator[Span]:
    """Cut rows with the same set where they are not adjacent."""
    if isinstance(rows, range):
        yield Span(rows[0], number, len(rows))
        return
    done = 0
    for _, run in groupby(map(sub, rows, count())):
        length = len(list(run))
        yield Span(rows[done], number, length)
        done += length
