"""One pass over everything that G2 holds, a part at a time, so that a large G2 holds up nobody.

Used where something has become possible for all of it at once: slots are granted again, the shared index can be asked.
What enters meanwhile needs no pass, what leaves is passed over. Blocks near the start of their chains tend to come
first, since recovery enters them last.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Callable, Sequence

from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.vocabulary import ContentKey, GroupId
from blockyard_block_manager.node_tables import NodeTables


class G2Sweep:
    """One kind of pass."""

    def __init__(
        self, tables: NodeTables, part_blocks: int, visit: Callable[[BlockScope, Sequence[BlockName]], None]
    ) -> None:
        """Call ``visit`` with blocks of one scope, at most ``part_blocks`` per step."""
        self._tables = tables
        self._part_blocks = part_blocks
        self._visit = visit
        self._left = list[tuple[ContentKey, GroupId]]()

    @property
    def under_way(self) -> bool:
        """Whether something is left to visit."""
        return bool(self._left)

    def start(self) -> None:
        """Begin a new pass; what was left of the last one is part of it."""
        self._left = self._tables.in_g2()

    def stop(self) -> None:
        """Give up what is left."""
        self._left.clear()

    def step(self) -> None:
        """Visit the next part, if any is left."""
        if self._left:
            part = self._left[-self._part_blocks :]
            del self._left[-self._part_blocks :]
            for scope, names in self._tables.named(part).items():
                self._visit(scope, names)
