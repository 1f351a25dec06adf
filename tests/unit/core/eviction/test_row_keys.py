"""Names of rows: one per key and group."""

from blockyard.core.eviction.row_keys import keys_of, parents_of
from blockyard.core.stored_key import ROOT, stored_keys
from blockyard.core.vocabulary import GroupId
from blockyard.testing.eviction_conformance import rows
from blockyard.testing.row_columns import NamedRows


def test_rows_of_group_0_are_named_by_their_keys() -> None:
    columns = NamedRows(2)
    columns.name_chain(rows(0, 1))
    assert keys_of(columns, rows(1, 0)) == stored_keys([columns.keys[1], columns.keys[0]], GroupId(0))
    assert parents_of(columns, rows(1, 0)) == [*stored_keys(columns.keys[:1], GroupId(0)), ROOT]


def test_rows_of_several_groups_have_names_of_their_own_in_order() -> None:
    columns = NamedRows(4)
    columns.name_chain(rows(0, 1), "a", "b", group=2)
    columns.name_chain(rows(2, 3), "a", "b", group=0)
    names = keys_of(columns, rows(0, 2, 3, 1))
    assert names[1:3] == stored_keys(columns.keys[2:], GroupId(0))
    assert [names[0], names[3]] == stored_keys(columns.keys[:2], GroupId(2))
    assert parents_of(columns, rows(0, 2, 3, 1)) == [ROOT, ROOT, names[1], names[0]]
