"""Which KV groups have a sliding window: their rows are of use without those before them.

The engines of the node say so; what one of them said holds for this life of the node, since its blocks stay when it
leaves. Blocks that an earlier life left may be looked at before any engine has spoken: ``learn`` says whose are to be
looked at again.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable
from typing import final

from blockyard.core.kv_groups import GroupKind, KvGroup
from blockyard.core.vocabulary import GroupId, IdentityDigest

WindowedGroup = tuple[IdentityDigest, GroupId]


@final
class WindowedGroups:
    """Groups with a window, by model."""

    def __init__(self) -> None:
        """Start without any."""
        self._groups: set[WindowedGroup] = set()

    def __contains__(self, group: WindowedGroup) -> bool:
        """Whether an engine of this life said that a group of its model has a window."""
        return group in self._groups

    def learn(self, identity: IdentityDigest, groups: Iterable[KvGroup]) -> frozenset[WindowedGroup]:
        """An engine has these groups; returns those with a window that nobody had told of."""
        windows = (group.group for group in groups if group.kind is GroupKind.SLIDING_WINDOW)
        new = frozenset((identity, group) for group in windows) - self._groups
        self._groups |= new
        return new
