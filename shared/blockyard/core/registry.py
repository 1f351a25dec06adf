"""What is known of a key across the tiers of one node: where it is present, what is attached to it, who hears of uses.

Presence is read from the indexes of the pools; no key is kept a second time. Only keys that somebody attached something
to have an entry here, and it goes in the call in which the last tier drops the key: a block that is stored again later
starts without attachments.
Invariants: every key with attachments is findable in some tier; the attachments of one type at one key are either one
value or a list.
Threading: one owner thread, that of the pools.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, final

from blockyard.core.errors import BlockNotFoundError, KernelError
from blockyard.core.vocabulary import BlockId, ContentKey, GroupId, Tier

TouchObserver = Callable[[Tier, GroupId, Sequence[ContentKey]], None]
"""Told of uses before they take effect: tier, group, and one key per use in the order of the call.

One that raises fails the call, which has then changed nothing.
"""
Value = TypeVar("Value")


class KeyIndex(Protocol):
    """Findable rows of one tier by group and key, as its pool keeps them."""

    @property
    def groups(self) -> tuple[int, ...]:
        """Groups that had a findable row."""
        ...

    def in_group(self, group: int) -> Mapping[ContentKey, BlockId]:
        """Rows of a group by key, as they are now."""
        ...


class AttachmentKindError(KernelError):
    """A type of attachment of a key is either unique or multiple, and this one is the other."""

    code = "attachment-kind"
    title = "The attachment is of the other kind"


@final
class BlockRegistry:
    """Shared by the pools of one node, one per tier."""

    __slots__ = ("_attached", "_indexes", "_observers")

    def __init__(self) -> None:
        """Start without tiers; each pool enters itself."""
        self._indexes: dict[Tier, KeyIndex] = {}
        # A tuple is the one value of its type, a list are many.
        self._attached: dict[ContentKey, dict[type[object], tuple[object] | list[object]]] = {}
        self._observers: tuple[TouchObserver, ...] = ()

    # --- presence ---------------------------------------------------------------------------------------------------
    def enter(self, tier: Tier, index: KeyIndex) -> None:
        """Read the presence of keys in a tier from this index from now on; for the pool of the tier."""
        if tier in self._indexes:
            raise KernelError("a tier has one pool", tier=tier.label)
        self._indexes[tier] = index

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """Tiers with a pool."""
        return tuple(self._indexes)

    def holds(self, tier: Tier, keys: Sequence[ContentKey], group: GroupId) -> list[bool]:
        """Per key, whether the tier holds it; nowhere in a tier without a pool. Touches nothing."""
        index = self._indexes.get(tier)
        if index is None:
            return [False] * len(keys)
        return list(map(index.in_group(group).__contains__, keys))

    def tiers_of(self, keys: Sequence[ContentKey], group: GroupId) -> list[tuple[Tier, ...]]:
        """Per key, the tiers that hold it. Touches nothing."""
        columns = [self.holds(tier, keys, group) for tier in self._indexes]
        return [
            tuple(tier for tier, present in zip(self._indexes, row, strict=True) if present)
            for row in (zip(*columns, strict=True) if columns else [()] * len(keys))
        ]

    def is_present(self, key: ContentKey) -> bool:
        """Whether any tier holds the key, in any group."""
        return any(key in index.in_group(group) for index in self._indexes.values() for group in index.groups)

    # --- attachments ------------------------------------------------------------------------------------------------
    def attach(self, key: ContentKey, value: object) -> None:
        """Add a value to those of its type at this key.

        Raises:
            BlockNotFoundError: no tier holds the key.
            AttachmentKindError: the values of this type at this key are unique.
        """
        earlier = self._of_kind(key, type(value), list)
        if earlier is None:
            self._attached.setdefault(key, {})[type(value)] = [value]
        else:
            earlier.append(value)

    def attach_unique(self, key: ContentKey, value: object) -> None:
        """Make this the only value of its type at this key, in place of an earlier one; raises like ``attach``."""
        self._of_kind(key, type(value), tuple)
        self._attached.setdefault(key, {})[type(value)] = (value,)

    def attached(self, key: ContentKey, kind: type[Value]) -> tuple[Value, ...]:
        """Values of exactly this type at this key, in the order of their attachment; one at most where unique."""
        values = self._attached.get(key, {}).get(kind, ())
        return tuple(value for value in values if isinstance(value, kind))

    # --- uses -------------------------------------------------------------------------------------------------------
    def observe(self, observer: TouchObserver) -> None:
        """Tell ``observer`` of every registration and every lookup that pins, for good."""
        self._observers += (observer,)

    @property
    def observed(self) -> bool:
        """Whether anybody wants to hear of uses."""
        return bool(self._observers)

    # --- for pools --------------------------------------------------------------------------------------------------
    def touched(self, tier: Tier, group: GroupId, keys: Sequence[ContentKey]) -> None:
        """These keys are about to be used."""
        if keys:
            for observer in self._observers:
                observer(tier, group, keys)

    def left(self, keys: Sequence[ContentKey]) -> None:
        """These keys have left one index: what is attached to those that are nowhere else goes."""
        if self._attached:
            for key in keys:
                if key in self._attached and not self.is_present(key):
                    del self._attached[key]

    def cleared(self) -> None:
        """A tier has dropped many of its keys at once."""
        self.left(list(self._attached))

    def violations(self) -> list[str]:
        """What contradicts the invariants, for checks."""
        lost = [key for key in self._attached if not self.is_present(key)]
        return [f"{len(lost)} keys have attachments and no block"] if lost else []

    def _of_kind(self, key: ContentKey, kind: type[object], wanted: type[Value]) -> Value | None:
        if not self.is_present(key):
            raise BlockNotFoundError("nothing can be attached to a key that no tier holds", key=key.hex())
        values = self._attached.get(key, {}).get(kind)
        if values is not None and not isinstance(values, wanted):
            raise AttachmentKindError(type=kind.__name__, attached="many" if wanted is tuple else "one")
        return values
