"""Scopes of rows: each kept once, and dropped when no row carries it any more."""

from blockyard.core.row_scopes import RowScope, RowScopes
from blockyard.core.vocabulary import DEFAULT_TENANT, BlockId, GroupId, IdentityDigest, TenantDigest
from blockyard.testing.blocks import IDENTITY


def scope(tenant: int, group: int = 0) -> RowScope:
    return RowScope(IDENTITY, TenantDigest(tenant.to_bytes(16, "big")), GroupId(group))


def test_equal_scopes_share_a_number_and_others_do_not() -> None:
    scopes = RowScopes(4)
    first = scopes.number(scope(1))
    assert scopes.number(scope(1)) == first
    assert len({first, scopes.number(scope(2)), scopes.number(scope(1, group=1))}) == 3


def test_rows_tell_the_scopes_they_carry() -> None:
    scopes = RowScopes(3)
    for row in (0, 2):
        scopes.column[row] = scopes.number(scope(row + 1))
    nobody = RowScope(IdentityDigest(bytes(32)), DEFAULT_TENANT, GroupId(0))
    assert scopes.of([BlockId(2), BlockId(1), BlockId(0)]) == [scope(3), nobody, scope(1)]


def test_scopes_that_no_row_carries_are_dropped_and_the_others_keep_their_numbers() -> None:
    scopes = RowScopes(2)
    scopes.column[0] = scopes.number(scope(0, group=7))
    most = 0
    for tenant in range(5000):
        scopes.column[1] = scopes.number(scope(tenant))
        most = max(most, len(scopes))
        assert scopes.of([BlockId(0), BlockId(1)]) == [scope(0, group=7), scope(tenant)]
    assert most < 2000
