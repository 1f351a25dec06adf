"""Port of an executor: who moves the bytes of rows between an engine's memory and slots of the arena.

What surrounds a move (permission, guards, headers, checksums) is the same for all of them, see ``engine_copies``.
Both directions hand the payload over piece by piece, in its order and without gaps, each as soon as its bytes are
final, so that it can be hashed while it is in the cache. Nothing is moved before the pieces are asked for.
Threading: the copy thread asks for pieces; ``close`` comes when no job uses the mapping any more.
"""

from collections.abc import Iterator
from typing import Protocol

from blockyard.core.vocabulary import GroupId
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.g1_mapping import PageColumn


class G1Copier(Protocol):
    """Moves rows of one mapped engine."""

    def gather(self, group: GroupId, pages: PageColumn, payload: ByteArray) -> Iterator[ByteArray]:
        """Copy the row that lies in these pages into ``payload``, which has exactly the bytes of a row."""
        ...

    def scatter(self, group: GroupId, pages: PageColumn, payload: ByteArray) -> Iterator[ByteArray]:
        """Copy ``payload`` into these pages, in all ranks that hold them; parts without a page are left out."""
        ...

    def close(self) -> None:
        """Let go of the engine's memory. Idempotent."""
        ...
