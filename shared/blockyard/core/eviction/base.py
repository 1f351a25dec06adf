"""Port of an eviction policy: an order over the inactive rows of one tier.

The policy knows rows and, through ``RowColumns``, the names of the blocks in them; never tiers, bytes or handles. The
table calls it in batches and checks what it answers, so a faulty policy fails an allocation but cannot hand out a
block in use.

Life of a row, as the policy sees it::

    touch ──► insert ──► remove ──► insert ──► take ──► forget          touch at every use, before insert or remove
                │           └── in use again     └─ put_back (nothing happened)
                └──► remove ──► forget           condemned or cleared, or evicted during a sweep

Contract:
- A row is in the order exactly while it is INACTIVE, and, after a clear, until the sweep that removes it.
- ``touch`` counts one use per occurrence: a registration, or a lookup that pins. Rows come in chain order, head first;
  pinned rows are touched too, so a touched row need not be in the order.
- ``take(n)`` with ``n <= len(policy)`` removes and returns n rows, first victim first. ``put_back`` undoes a ``take``:
  the rows stand first again, in the given order, and no history has changed.
- ``forget`` comes when the blocks have left the tier, while the columns still name them: what a policy keeps about
  blocks that are gone, it keeps by key.
- A row may be inserted that was never touched: a stored block found at start, of which nothing is known.
- Adjacent rows in ascending order may come as a ``range``, which means what the list of its rows means.
- All calls are total: no order of legal calls raises, recurses or leaves a part done.
Threading: the owner thread of the table.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from blockyard.core.vocabulary import BlockId, ContentKey


class RowColumns(Protocol):
    """What a table lets its policy read; meaningless for rows without a registered block."""

    @property
    def capacity(self) -> int:
        """Rows of the table: ids are below it."""
        ...

    def keys_of(self, rows: Sequence[BlockId]) -> list[ContentKey]:
        """Content keys, aligned with ``rows``."""
        ...

    def parents_of(self, rows: Sequence[BlockId]) -> list[ContentKey]:
        """Keys of the blocks before them in their chains, aligned with ``rows``; ``ROOT_KEY`` at position 0."""
        ...

    def positions_of(self, rows: Sequence[BlockId]) -> list[int]:
        """Positions in their chains, aligned with ``rows``."""
        ...

    def groups_of(self, rows: Sequence[BlockId]) -> list[int]:
        """KV groups, aligned with ``rows``."""
        ...


class EvictionPolicy(Protocol):
    """Order in which inactive rows are evicted."""

    def __len__(self) -> int:
        """Number of rows held."""
        ...

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order, for checks; changes nothing."""
        ...

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """These blocks were registered or found by a lookup that pins them."""
        ...

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Take rows that just became inactive; ``blocks`` is in chain order, head first."""
        ...

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Take rows out of the order: they are in use again, condemned or cleared."""
        ...

    def take(self, count: int) -> list[BlockId]:
        """Remove and return the ``count`` rows that go first."""
        ...

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Undo a ``take`` that returned these rows."""
        ...

    def forget(self, blocks: Sequence[BlockId]) -> None:
        """These blocks have left the tier; their rows may name other blocks from now on."""
        ...


@runtime_checkable
class CheckedPolicy(EvictionPolicy, Protocol):
    """A policy that can compare what it keeps beside its order with the order; none has to."""

    def violations(self) -> list[str]:
        """What contradicts its invariants, a sentence each; changes nothing. Called between any two calls of a table.

        The order itself is compared with the table by ``invariants``, for every policy.
        """
        ...


PolicyFactory = Callable[[RowColumns], EvictionPolicy]
"""Makes an empty policy for a table; a policy class is one."""
