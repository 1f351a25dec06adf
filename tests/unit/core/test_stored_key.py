"""Keys of rows in the shared store: content key and group in one name."""

from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.block_facts import MAX_GROUP
from blockyard.core.stored_key import ROOT, stored_key, stored_keys
from blockyard.core.vocabulary import KEY_BYTES, ROOT_KEY, ContentKey, GroupId

KEY = ContentKey(bytes(range(16)))
some_key = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES).map(ContentKey)
some_group = st.integers(0, MAX_GROUP).map(GroupId)


def test_a_row_of_the_first_group_is_stored_under_its_content_key() -> None:
    assert bytes(stored_key(KEY, GroupId(0))) == bytes(KEY)


def test_a_row_of_another_group_has_the_published_name() -> None:
    assert stored_key(KEY, GroupId(1)).hex() == "81dd934b5fc560a8f9bc6eb8b7812b97"


def test_the_root_is_the_root_of_every_group() -> None:
    assert [stored_key(ROOT_KEY, GroupId(group)) for group in (0, 1, MAX_GROUP)] == [ROOT] * 3


@given(one=st.tuples(some_key, some_group), other=st.tuples(some_key, some_group))
def test_two_rows_share_a_name_exactly_when_key_and_group_are_equal(
    one: tuple[ContentKey, GroupId], other: tuple[ContentKey, GroupId]
) -> None:
    roots = one[0] == other[0] == ROOT_KEY
    assert (stored_key(*one) == stored_key(*other)) == (one == other or roots)


@given(keys=st.lists(some_key), group=some_group)
def test_many_names_are_those_of_each(keys: list[ContentKey], group: GroupId) -> None:
    assert stored_keys(keys, group) == [stored_key(key, group) for key in keys]
