"""Rows of the keys of one group: what was announced together lies side by side, so a lookup answers by runs of rows.

A question to a dict meets cold memory several times for each key. Here the dict answers for the first key of a run; the
rows behind it are compared as bytes with the keys asked for next, and their sets of holders are read as a slice. ::

    key ──► index ──► line of rows ──► row:  names    | key | key | key | ...   16 bytes each
                                             numbers  |  7  |  7  |  0  | ...   sets of holders, 0 for a dead row

Rows are given out in order, page by page, and never one by one for a second time: a page without keys is used anew, and
where a third of the rows is dead, the sparsest page is to be emptied, its keys move behind the last ones. So neighbours
stay neighbours, whatever leaves between them, and removing a key costs at most the moving of two, on the average.
Memory: beside the key and its entry, 20 bytes per row. Nothing of it is looked at by the collector of garbage.
Invariants: a key of the index has exactly one row with a number, in the line that the index names; other rows with its
bytes are dead. Keys have 16 bytes.
Threading: the owner thread of the index.
"""

from array import array
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, repeat
from typing import Final, NamedTuple, final

import numpy as np

from blockyard.core.vocabulary import KEY_BYTES, ContentKey

_NO_ROW: Final = -1
_LINE: Final = 64
"""Most rows that get a line together: a key is searched among those of its line."""
_JOINED: Final = 32
"""What comes fewer rows behind the begin of a line is of that line: many small lines cost memory."""
_SEARCHED: Final = (_LINE + _JOINED) * KEY_BYTES
_WINDOW: Final = 64
_SHORT: Final = 8
"""After a run of fewer rows, the next keys are looked up one by one."""
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


_UNKNOWN: Final = Span(_NO_ROW, 0, 1)


@final
class HolderRows:
    """Keys of one group, each with the number of its set of holders."""

    __slots__ = (
        "_end",
        "_free",
        "_index",
        "_joined",
        "_line_at",
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
        self._joined: Final = min(_JOINED, page) * KEY_BYTES
        self._index: dict[ContentKey, int] = {}
        """Where the line of a key begins in ``_names``."""
        self._names = bytearray()
        self._numbers = array("I")
        self._live = array("H")
        """Keys per page."""
        self._free: set[int] = set()
        self._open = _NO_ROW
        """Page whose rows are given out."""
        self._next = self._end = 0
        self._used = 0
        """Rows given out, in pages that are in use."""
        self._line_at = 0
        """The last value put into ``_index``: keys of a line share one object."""

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

    def spans(self, keys: Sequence[ContentKey]) -> Iterator[Span]:
        """Where these are, in their order; read as far as wanted, and without changes in between."""
        done, window = 0, _WINDOW
        while done < len(keys):
            row = self._row(keys[done])
            begun = done
            if row < 0:
                yield _UNKNOWN
                done += 1
            else:
                for span in self._alike(row, keys[done : done + window]):
                    yield span
                    done += span.length
            window = 2 * max(done - begun, _SHORT)
            if done - begun < _SHORT:
                for key in keys[done : done + _SHORT]:
                    row = self._row(key)
                    yield _UNKNOWN if row < 0 else Span(row, self._numbers[row], 1)
                done += _SHORT

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
        end = line + _SEARCHED
        at = self._names.index(key, line, end)
        # Bytes of two neighbours, or a dead row, may look the same.
        while at % KEY_BYTES or not self._numbers[at // KEY_BYTES]:
            at = self._names.index(key, at + 1, end)
        return at // KEY_BYTES

    def _alike(self, row: int, keys: Sequence[ContentKey]) -> Iterator[Span]:
        """Rows from ``row`` on that have these keys, the first of them at least."""
        asked = b"".join(keys)
        at = row * KEY_BYTES
        known = self._names[at : at + len(asked)]
        if known == asked:
            return self._equal(row, len(keys))
        same, different = 1, len(keys)
        while different - same > 1:
            middle = (same + different) // 2
            part = slice(same * KEY_BYTES, middle * KEY_BYTES)
            if known[part] == asked[part]:
                same = middle
            else:
                different = middle
        return self._equal(row, same)

    def _equal(self, row: int, length: int) -> Iterator[Span]:
        """Cut rows where their numbers change, and end before a dead one."""
        numbers = self._numbers[row : row + length]
        first = numbers[0]
        if numbers.tobytes() == numbers[:1].tobytes() * length:
            yield Span(row, first, length)
            return
        for number, run in groupby(numbers):
            if not number:
                return
            part = len(list(run))
            yield Span(row, number, part)
            row += part

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
            at = (row + done) * KEY_BYTES
            if not 0 <= at - self._line_at < self._joined:
                self._line_at = at
            self._index.update(zip(keys[done : done + _LINE], repeat(self._line_at)))

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
        if self._open >= 0 and not self._live[self._open]:
            self._close(self._open)
        page = self.pages
        if self._free:
            page = self._open + 1 if self._open + 1 in self._free else self._free.pop()
            self._free.discard(page)
            self._live[page] = 0
        else:
            self._live.append(0)
            self._names += bytes(self._page * KEY_BYTES)
            self._numbers.frombytes(bytes(self._page * self._numbers.itemsize))
        self._open = page
        self._next = page * self._page
        self._end = self._next + self._page
