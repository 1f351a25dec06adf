"""Blocks of G2 that wait for their copy into G3, or are being copied, and who of them waits behind whom.

Invariants: ``behind`` names exactly the waiting blocks whose parent a block is, so that nobody has to walk through all
that waits to find them; a block waits or is under way at most once.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, final

from blockyard.core.block_name import BlockName
from blockyard.core.clear_scope import ClearScope
from blockyard.core.events import BlockScope
from blockyard.core.offload_queue import OffloadCopy, OffloadQueue
from blockyard.core.vocabulary import ContentKey
from blockyard.core.work_queue import QueueLimits
from blockyard.wire.trace_parent import TraceParent


class DiskName(NamedTuple):
    """What is copied."""

    scope: BlockScope
    key: ContentKey


class DiskWork(NamedTuple):
    """A wish for a copy."""

    name: BlockName
    scope: BlockScope
    trace: TraceParent


DiskCopy = OffloadCopy[DiskName, DiskWork]


@final
class DiskQueue:
    """The queue of one node, the heads of chains first."""

    def __init__(self, limits: QueueLimits, block_bytes: int) -> None:
        """Start empty; every block stands for ``block_bytes``."""
        self._queue: OffloadQueue[DiskName, BlockScope, DiskWork] = OffloadQueue(limits)
        self._block_bytes = block_bytes
        self.most: Final = min(
            limits.entries, limits.size_bytes // block_bytes if limits.size_bytes else limits.entries
        )
        """Blocks that may wait."""
        self._parents: dict[DiskName, DiskName] = {}
        """Of each block that waits."""
        self._behind: dict[DiskName, dict[DiskName, BlockName]] = {}
        """Of each parent in ``_parents``, the blocks that have it."""

    # --- reading ------------------------------------------------------------------------------------------------------
    @property
    def waiting(self) -> int:
        """Blocks that wait."""
        return self._queue.waiting

    @property
    def room(self) -> int:
        """Blocks that may come before others have to make room."""
        return self.most - self._queue.waiting

    def fits(self, blocks: int) -> bool:
        """Whether so many blocks, or as many as may wait at all, may come before others have to make room."""
        return self.room >= min(blocks, self.most)

    def __contains__(self, name: object) -> bool:
        """Whether a block waits or is under way."""
        return name in self._queue

    def under_way(self, name: DiskName) -> bool:
        """Whether the copy of a block has begun and not settled."""
        return self._queue.under_way(name)

    def behind(self, scope: BlockScope, key: ContentKey) -> list[BlockName]:
        """Waiting blocks whose parent this block is."""
        return list(self._behind.get(DiskName(scope, key), {}).values())

    def in_scope(self, scope: ClearScope) -> list[DiskName]:
        """Waiting blocks that a clear is about."""
        copies = self._queue.waiting_copies()
        return [copy.name for copy in copies if scope.covers(copy.name.scope.identity, copy.name.scope.tenant)]

    # --- changing -----------------------------------------------------------------------------------------------------
    def offer(self, scope: BlockScope, block: BlockName, trace: TraceParent) -> list[DiskName]:
        """Let a block wait; returns those that had to make room, perhaps itself."""
        name = DiskName(scope, block.key)
        if name in self._queue:
            return []
        parent = self._parents[name] = DiskName(scope, block.parent)
        self._behind.setdefault(parent, {})[name] = block
        offer = self._queue.offer(
            name,
            DiskWork(block, scope, trace),
            lane=scope,
            priority=-block.position,
            size_bytes=self._block_bytes,
        )
        for dropped in offer.dropped:
            self._no_longer_waits(dropped)
        return list(offer.dropped)

    def cancel(self, names: Iterable[DiskName]) -> None:
        """These blocks do not wait any more; those that are under way go on."""
        for name in names:
            self._queue.cancel(name)
            self._no_longer_waits(name)

    def take(self, limit: int) -> Sequence[DiskCopy]:
        """Begin the most urgent copies of one scope; perhaps none. Each has to be settled."""
        copies = self._queue.take(limit)
        for copy in copies:
            self._no_longer_waits(copy.name)
        return copies

    def settle(self, copies: Iterable[DiskCopy]) -> None:
        """These copies have ended, or were found to be of no use when their turn came."""
        self._queue.settle(copies)

    # --- inside -------------------------------------------------------------------------------------------------------
    def _no_longer_waits(self, name: DiskName) -> None:
        parent = self._parents.pop(name, None)
        if parent is not None:
            siblings = self._behind[parent]
            del siblings[name]
            if not siblings:
                del self._behind[parent]
