"""The key under which a row lies in the shared store: what names its pack, its object and its index entry.

Rows of several KV groups have one content key, so there the group is part of the name::

    group 0      the content key
    other group  first 16 bytes of SHA-256(magic ‖ u32 group ‖ content key)
    root         the root, in every group

A model with one group so names its packs as if there were no groups. Headers and events carry content key and group.
Invariants: two rows share a stored key exactly when key and group are equal. Threading: pure functions.
"""

import hashlib
from collections.abc import Iterable
from typing import Final, NewType

from blockyard.core.block_facts import DEFAULT_GROUP, MAX_GROUP
from blockyard.core.vocabulary import KEY_BYTES, ROOT_KEY, ContentKey, GroupId
from blockyard.core.whole_numbers import require_whole

StoredKey = NewType("StoredKey", bytes)
"""Content key and group in one: 16 bytes."""

ROOT: Final = StoredKey(bytes(ROOT_KEY))
"""What the first block of a chain has in the place of a parent."""
_MAGIC: Final = b"blockyard stored key 1\0"
_GROUP_BYTES: Final = 4


def stored_key(key: ContentKey, group: GroupId) -> StoredKey:
    """Key of one row in the store."""
    return stored_keys((key,), group)[0]


def stored_keys(keys: Iterable[ContentKey], group: GroupId) -> list[StoredKey]:
    """Keys of rows of one group, in order."""
    if group == DEFAULT_GROUP:
        return [StoredKey(key) for key in keys]
    require_whole("group", group, 0, MAX_GROUP)
    stem = _MAGIC + group.to_bytes(_GROUP_BYTES, "little")
    return [ROOT if key == ROOT_KEY else StoredKey(hashlib.sha256(stem + key).digest()[:KEY_BYTES]) for key in keys]
