"""Whose the blocks of a table are: identity, tenant and KV group, each combination kept once and numbered.

A table of a million rows knows few combinations, so a row keeps a number of four bytes instead of three references.
Invariants: a number names one scope as long as a row carries it; scopes that no row carries any more are dropped when
as many have come as were left by the last such sweep, so that the memory is bounded by what the rows need.
Threading: the owner thread of the table.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple, final

import numpy as np
import numpy.typing as npt

from blockyard.core.clear_scope import ClearScope
from blockyard.core.vocabulary import DEFAULT_TENANT, DIGEST_BYTES, BlockId, GroupId, IdentityDigest, TenantDigest

_SLACK: Final = 1024


class RowScope(NamedTuple):
    """What all blocks of one stored batch share."""

    identity: IdentityDigest
    tenant: TenantDigest
    group: GroupId


_NOBODY: Final = RowScope(IdentityDigest(bytes(DIGEST_BYTES)), DEFAULT_TENANT, GroupId(0))


@final
class RowScopes:
    """Numbers of scopes, and the column of them."""

    __slots__ = ("_column", "_numbers", "_scopes", "_spare", "_sweep_at")

    def __init__(self, capacity: int) -> None:
        """Rows that nobody has named yet carry number 0."""
        self._column = array("I", (0,)) * capacity
        self._scopes = [_NOBODY]
        self._numbers = {_NOBODY: 0}
        self._spare: list[int] = []
        self._sweep_at = _SLACK

    def __len__(self) -> int:
        """Scopes in memory."""
        return len(self._numbers)

    @property
    def column(self) -> "array[int]":
        """Number of the scope of every row; to be written by whoever names rows."""
        return self._column

    def number(self, scope: RowScope) -> int:
        """Number of a scope, new where it is not known."""
        number = self._numbers.get(scope)
        if number is None:
            number = self._number_new(scope)
        return number

    def of(self, rows: Sequence[BlockId]) -> list[RowScope]:
        """Scopes, aligned with ``rows``."""
        return list(map(self._scopes.__getitem__, map(self._column.__getitem__, rows)))

    def rows_in(self, scope: ClearScope) -> npt.NDArray[np.bool_]:
        """Per row, whether the scope it carries is covered; for rows without a block that means nothing."""
        if scope.is_everything:
            return np.ones(len(self._column), dtype=np.bool_)
        covered = [scope.covers(known.identity, known.tenant) for known in self._scopes]
        return np.array(covered, dtype=np.bool_)[np.frombuffer(self._column, dtype=np.uint32)]

    def _number_new(self, scope: RowScope) -> int:
        if len(self._numbers) >= self._sweep_at:
            self._sweep()
        if self._spare:
            number = self._spare.pop()
            self._scopes[number] = scope
        else:
            number = len(self._scopes)
            self._scopes.append(scope)
        self._numbers[scope] = number
        return number

    def _sweep(self) -> None:
        used = np.zeros(len(self._scopes), dtype=np.bool_)
        used[np.frombuffer(self._column, dtype=np.uint32)] = True
        used[0] = True
        for number in np.flatnonzero(~used).tolist():
            if self._numbers.get(self._scopes[number]) == number:
                del self._numbers[self._scopes[number]]
                self._spare.append(number)
        self._sweep_at = 2 * len(self._numbers) + _SLACK
