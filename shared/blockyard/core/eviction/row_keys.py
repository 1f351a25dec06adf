"""Stored keys of rows: content key and group in one, for what a policy keeps by name.

Rows of one content key in several groups are used and evicted each for itself, so they need names of their own.
Threading: pure functions.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from blockyard.core.eviction.base import RowColumns
from blockyard.core.stored_key import StoredKey, stored_keys
from blockyard.core.vocabulary import BlockId, ContentKey, GroupId


def keys_of(columns: RowColumns, rows: Sequence[BlockId]) -> list[StoredKey]:
    """Names of the blocks in these rows, aligned with ``rows``."""
    return _stored(columns.keys_of(rows), columns.groups_of(rows))


def parents_of(columns: RowColumns, rows: Sequence[BlockId]) -> list[StoredKey]:
    """Names of the blocks before them in their chains; the root's at position 0."""
    return _stored(columns.parents_of(rows), columns.groups_of(rows))


def _stored(keys: list[ContentKey], groups: list[int]) -> list[StoredKey]:
    if not any(groups):
        return stored_keys(keys, GroupId(0))
    names: list[StoredKey] = []
    for group, pairs in groupby(zip(groups, keys, strict=True), itemgetter(0)):
        names += stored_keys([key for _, key in pairs], GroupId(group))
    return names
