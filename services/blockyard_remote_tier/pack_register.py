"""What this life of the worker has learned about packs: which keys lie in them, and which are damaged.

The locators of a lost or damaged pack are dropped together, also those that nobody asked for yet, so that one failed
read per pack is enough. A damaged pack is never adopted again as if it were sound: its next put replaces it.
Invariants: bounded; forgetting costs another failed read, nothing else.
Threading: one event loop.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from blockyard.core.stored_key import StoredKey
from blockyard.core.vocabulary import PackId

_PACKS_REMEMBERED: Final = 4_096


class PackRegister:
    """Bounded memory of packs, least recently learned forgotten first."""

    def __init__(self, capacity: int = _PACKS_REMEMBERED) -> None:
        """Remember at most ``capacity`` packs, and as many damaged ones."""
        self._capacity = capacity
        self._members: OrderedDict[PackId, set[StoredKey]] = OrderedDict()
        self._damaged: OrderedDict[PackId, None] = OrderedDict()

    def learn(self, pack: PackId, keys: Iterable[StoredKey]) -> None:
        """These keys have locators into ``pack``."""
        self._members.setdefault(pack, set()).update(keys)
        self._members.move_to_end(pack)
        if len(self._members) > self._capacity:
            self._members.popitem(last=False)

    def forget(self, pack: PackId) -> set[StoredKey]:
        """The pack is gone; answers the keys that were known to lie in it."""
        return self._members.pop(pack, set())

    def condemn(self, pack: PackId) -> None:
        """The pack proved to be damaged."""
        self._damaged[pack] = None
        self._damaged.move_to_end(pack)
        if len(self._damaged) > self._capacity:
            self._damaged.popitem(last=False)

    def absolve(self, pack: PackId) -> None:
        """The pack was written anew."""
        self._damaged.pop(pack, None)

    def is_damaged(self, pack: PackId) -> bool:
        """True where the pack was condemned and not written anew by this process."""
        return pack in self._damaged
