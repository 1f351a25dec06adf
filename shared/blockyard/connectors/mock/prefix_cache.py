"""The demo engine's own prefix cache over G1: which engine block holds which key, least recently used first out.

Invariants: a block is free, cached or in use by requests; only cached blocks nobody uses are evicted.
Threading: owned by the engine's event loop.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence

from blockyard.core.errors import OutOfBlocksError
from blockyard.core.vocabulary import ContentKey, EngineBlockId


class PrefixCache:
    """Blocks of one engine by content key."""

    def __init__(self, blocks: int) -> None:
        """All ``blocks`` blocks start free."""
        self._free = [EngineBlockId(block) for block in reversed(range(blocks))]
        self._cached: OrderedDict[ContentKey, EngineBlockId] = OrderedDict()
        self._keys: dict[EngineBlockId, ContentKey] = {}
        self._users: dict[EngineBlockId, int] = {}

    def __len__(self) -> int:
        """Number of cached blocks."""
        return len(self._cached)

    def hold_prefix(self, keys: Sequence[ContentKey]) -> list[EngineBlockId]:
        """Blocks of the longest cached prefix, now in use; end it with ``let_go``."""
        held: list[EngineBlockId] = []
        for key in keys:
            block = self._cached.get(key)
            if block is None:
                break
            self._cached.move_to_end(key)
            self._users[block] = self._users.get(block, 0) + 1
            held.append(block)
        return held

    def allocate(
        self, count: int, unusable: Collection[EngineBlockId]
    ) -> tuple[list[EngineBlockId], list[EngineBlockId]]:
        """Take ``count`` blocks into use, all or nothing.

        Args:
            count: how many.
            unusable: blocks that must not be given out yet.

        Returns:
            The blocks, and those among them that were cached until now.

        Raises:
            OutOfBlocksError: too few blocks are free or evictable; nothing changed.
        """
        free = [block for block in self._free if block not in unusable]
        idle = [
            (key, block) for key, block in self._cached.items() if block not in self._users and block not in unusable
        ]
        if len(free) + len(idle) < count:
            raise OutOfBlocksError(asked=count, free=len(free), evictable=len(idle))
        taken = free[-count:] if count else []
        evicted = idle[: count - len(taken)]
        for key, block in evicted:
            del self._cached[key], self._keys[block]
        chosen = set(taken)
        self._free = [block for block in self._free if block not in chosen]
        blocks = taken + [block for _, block in evicted]
        for block in blocks:
            self._users[block] = 1
        return blocks, [block for _, block in evicted]

    def insert(self, key: ContentKey, block: EngineBlockId) -> bool:
        """Cache a block in use under ``key``; False where the key is cached already (the block stays a private one)."""
        if key in self._cached:
            return False
        self._cached[key] = block
        self._keys[block] = key
        return True

    def let_go(self, blocks: Sequence[EngineBlockId]) -> None:
        """End one use of each block; private blocks become free."""
        for block in blocks:
            users = self._users.pop(block) - 1
            if users:
                self._users[block] = users
            elif block not in self._keys:
                self._free.append(block)

    def clear(self) -> None:
        """Forget every cached block that nobody uses."""
        for key, block in list(self._cached.items()):
            if block not in self._users:
                del self._cached[key], self._keys[block]
                self._free.append(block)
