"""S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi 2023): a small queue on trial, a main queue, and names of who failed.

New blocks enter the small queue, a tenth of the table. Who was used again before its turn passes to the main queue, the
others leave, and their names are remembered for nine tenths of the table: who comes back within that time enters the
main queue at once. There a used block is given another round for each use, up to three.
Blocks keep their places while they are in use.
Invariants: a row counts for the queue in which it last became inactive, also while it is in use. Rows that were put
back stand in a ring of their own, before both queues.
Threading: the owner thread of the table.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, final

from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.block_history import BlockHistory
from blockyard.core.eviction.row_heap import RowHeap
from blockyard.core.eviction.row_keys import keys_of
from blockyard.core.eviction.row_rings import RowRings
from blockyard.core.eviction.row_set import RowSet
from blockyard.core.vocabulary import BlockId

_NEW: Final = 0
_SMALL: Final = 1
_MAIN: Final = 2
_SMALL_SHARE: Final = 0.1
_MOST_USES: Final = 3


@final
class S3FifoPolicy:
    """S3-FIFO over the rows of a table."""

    __slots__ = ("_columns", "_counted", "_failed", "_front", "_queue", "_queues", "_room", "_rows", "_sizes", "_uses")

    def __init__(self, columns: RowColumns) -> None:
        """Make an empty order for the rows of a table."""
        capacity = columns.capacity
        self._columns = columns
        self._rows = RowSet(capacity)
        self._queues = {_SMALL: RowHeap(capacity), _MAIN: RowHeap(capacity)}
        self._front = RowRings(capacity)
        self._queue = bytearray(capacity)
        """Queue that a row stands in, or will when it becomes inactive."""
        self._counted = bytearray(capacity)
        """Queue whose size counts the row; it has a place there."""
        self._uses = bytearray(capacity)
        self._sizes = [0, 0, 0]
        self._room = capacity * _SMALL_SHARE
        self._failed = BlockHistory(capacity * 9 // 10 + 1)

    def __len__(self) -> int:
        """Number of rows held."""
        return len(self._rows)

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order, as long as nothing is used; the first few cost little."""
        yield from self._front.rows()
        small, main = (iter(self._queues[queue]) for queue in (_SMALL, _MAIN))
        small_left, main_left = (len(self._queues[queue]) for queue in (_SMALL, _MAIN))
        size = self._sizes[_SMALL] - sum(self._counted[row] == _SMALL for row in self._front.rows())
        again, uses = deque[BlockId](), dict[BlockId, int]()
        while small_left or main_left:
            if small_left and (size > self._room or not main_left):
                row = next(small)
                small_left -= 1
                size -= 1
                passed, uses[row] = self._uses[row] > 0, 0
            else:
                waiting = next(main, None)
                row = again.popleft() if waiting is None else waiting
                main_left -= 1
                left = uses.get(row, self._uses[row])
                passed, uses[row] = left > 0, max(0, left - 1)
            if passed:
                again.append(row)
                main_left += 1
            else:
                yield row

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """Count the use; a block that is new in its row enters a queue instead."""
        queue, uses = self._queue, self._uses
        fresh = [row for row in dict.fromkeys(blocks) if not queue[row]]
        names = dict(zip(fresh, keys_of(self._columns, fresh), strict=True))
        for row in blocks:
            if queue[row]:
                uses[row] = min(_MOST_USES, uses[row] + 1)
            else:
                queue[row] = _SMALL if self._failed.recall(names[row]) is None else _MAIN

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Put new blocks behind all others of their queue, the last row first; known ones return to their places."""
        self._rows.enter(blocks)
        queue, counted = self._queue, self._counted
        for row in blocks:
            if not queue[row]:
                queue[row] = _SMALL
        for number, heap in self._queues.items():
            mine = [row for row in reversed(blocks) if queue[row] == number]
            known = [row for row in mine if counted[row]]
            heap.restore(known, [0] * len(known))
            self._enqueue([row for row in mine if not counted[row]], number)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out of the order; their queues go on counting them."""
        self._rows.leave(blocks)
        for heap in self._queues.values():
            heap.discard(blocks)
        self._front.unlink(blocks)

    def take(self, count: int) -> list[BlockId]:
        """Remove and return rows, giving those that were used their next round on the way."""
        taken = self._front.take(count)
        for row in taken:
            self._count(row, _NEW)
        for _ in range(min(count - len(taken), len(self._rows) - len(taken))):
            taken.append(self._next_victim())
        self._rows.leave(taken)
        return taken

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Put rows in front of both queues."""
        self._rows.enter(blocks)
        self._front.prepend(blocks)
        for row in blocks:
            self._count(row, self._queue[row])

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """Keep the names of the blocks that were on trial."""
        queue = self._queue
        small = [row for row in blocks if queue[row] == _SMALL]
        self._failed.add(keys_of(self._columns, small), [0] * len(small))
        for row in blocks:
            self._count(row, _NEW)
            queue[row] = self._uses[row] = 0

    def violations(self) -> list[str]:
        """What contradicts the invariants, for checks."""
        heaps = self._queues.values()
        broken = [*self._rows.violations(), *self._front.violations()]
        broken += [violation for heap in heaps for violation in heap.violations()]
        if broken:
            return broken
        queued = [(row, number) for number, heap in self._queues.items() for row in heap.ranks()]
        standing = [*self._front.rows(), *(row for row, _ in queued)]
        rules = {
            "not exactly the rows of the order stand in its queues": sorted(standing) == list(self._rows),
            "a row stands in another queue than its own": all(number == self._queue[row] for row, number in queued),
            "a row of the order does not count for its queue": all(
                self._counted[row] == self._queue[row] != _NEW for row in standing
            ),
            "a queue has another size than it counts": all(
                self._sizes[number] == self._counted.count(number) for number in self._queues
            ),
            "a row was used too often": max(self._uses) <= _MOST_USES,
        }
        return [rule for rule, holds in rules.items() if not holds]

    # --- inside -------------------------------------------------------------------------------------------------------
    def _next_victim(self) -> BlockId:
        """Cut the small queue while it is above its share, else the main one, until a block has no use to show."""
        small, main, uses = self._queues[_SMALL], self._queues[_MAIN], self._uses
        while True:
            if len(small) and (self._sizes[_SMALL] > self._room or not len(main)):
                (row,) = small.take(1)
                passed = bool(uses[row])
                uses[row] = 0
            else:
                (row,) = main.take(1)
                passed = bool(uses[row])
                uses[row] -= passed
            if not passed:
                self._count(row, _NEW)
                return row
            self._enqueue([row], _MAIN)

    def _enqueue(self, rows: Sequence[BlockId], queue: int) -> None:
        self._queues[queue].push(rows, [0] * len(rows))
        for row in rows:
            self._queue[row] = queue
            self._count(row, queue)

    def _count(self, row: BlockId, queue: int) -> None:
        sizes, counted = self._sizes, self._counted
        if counted[row] != queue:
            sizes[counted[row]] -= 1
            sizes[queue] += 1
            counted[row] = queue
