"""Port of an eviction policy: an order over the inactive rows of one tier.

The policy knows row ids only, never tiers, bytes or handles. The table calls it in batches and checks what it answers,
so a faulty policy fails an allocation but cannot hand out a block in use.

Contract:
- A row is in the policy exactly while it is INACTIVE.
- ``take(n)`` with ``n <= len(policy)`` removes and returns n rows, first victim first.
- ``put_back`` undoes a ``take``: the rows stand first again, in the given order.
Threading: the owner thread of the table.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from blockyard.core.vocabulary import BlockId


class EvictionPolicy(Protocol):
    """Order in which inactive rows are evicted."""

    def __len__(self) -> int:
        """Number of rows held."""
        ...

    def __iter__(self) -> Iterator[BlockId]:
        """Rows in eviction order, for checks; changes nothing."""
        ...

    def insert(self, blocks: Sequence[BlockId]) -> None:
        """Take rows that just became inactive; ``blocks`` is in chain order, head first."""
        ...

    def remove(self, blocks: Sequence[BlockId]) -> None:
        """Forget rows that are in use again, condemned or cleared."""
        ...

    def take(self, count: int) -> list[BlockId]:
        """Remove and return the ``count`` rows that go first."""
        ...

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        """Undo a ``take`` that returned these rows."""
        ...
