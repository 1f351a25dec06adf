"""Identity: every declared field counts, and no two can trade places."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.identity import ModelIdentity, SequenceScope, tagged
from blockyard.core.vocabulary import DEFAULT_TENANT

BASE = ModelIdentity(model="m")
SCOPE = SequenceScope(tenant="t", salt="s", lora="l")


def changed(**values: Any) -> ModelIdentity:
    """The base identity with other values in some fields."""
    return replace(BASE, **values)


@pytest.mark.parametrize("name", [item.name for item in fields(ModelIdentity)])
def test_changing_one_field_changes_the_digest(name: str) -> None:
    value: Any = getattr(BASE, name)
    other = value + 1 if isinstance(value, int) else value + "x"
    assert changed(**{name: other}).digest() != BASE.digest()


TEXT_FIELDS = [item.name for item in fields(ModelIdentity) if isinstance(getattr(BASE, item.name), str)]


@pytest.mark.parametrize("first", TEXT_FIELDS)
@pytest.mark.parametrize("second", TEXT_FIELDS)
def test_two_fields_cannot_trade_values(first: str, second: str) -> None:
    if first == second:
        return
    one = changed(**{first: "p", second: "q"})
    other = changed(**{first: "q", second: "p"})
    assert one.digest() != other.digest()


def test_the_digest_is_fixed_for_ever() -> None:
    """A golden value: nodes of different builds and processes must agree."""
    assert BASE.digest().hex() == "0687b5acf2c6e7e27f89dbfd82eb875c4f6dc047996654914b26efacf6f596df"


@given(
    st.lists(
        st.tuples(st.text(max_size=4), st.one_of(st.text(max_size=4), st.binary(max_size=4), st.integers())), max_size=4
    ),
    st.lists(
        st.tuples(st.text(max_size=4), st.one_of(st.text(max_size=4), st.binary(max_size=4), st.integers())), max_size=4
    ),
)
def test_tagged_fields_are_unambiguous(
    one: list[tuple[str, str | bytes | int]], other: list[tuple[str, str | bytes | int]]
) -> None:
    same = b"".join(tagged(*field) for field in one) == b"".join(tagged(*field) for field in other)
    assert same == (one == other)


@pytest.mark.parametrize("value", ["other", ""])
def test_every_part_of_the_scope_changes_the_root(value: str) -> None:
    identity = BASE.digest()
    for other in (replace(SCOPE, tenant=value), replace(SCOPE, salt=value), replace(SCOPE, lora=value)):
        assert other.root(identity) != SCOPE.root(identity)


def test_the_root_depends_on_the_identity() -> None:
    assert SCOPE.root(BASE.digest()) != SCOPE.root(ModelIdentity(model="n").digest())


def test_tenants_have_digests_of_their_own() -> None:
    assert SequenceScope().tenant_digest() == DEFAULT_TENANT
    digests = {SequenceScope(tenant=name).tenant_digest() for name in ("a", "b", "ab")}
    assert len(digests) == 3
    assert DEFAULT_TENANT not in digests
