"""Identity and scope: encoding, fixed values and refusals. That every field counts is a property test."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.errors import RequestError
from blockyard.core.identity import ModelIdentity, SequenceScope, tagged
from blockyard.core.vocabulary import DEFAULT_TENANT, IdentityDigest

BASE = ModelIdentity(model="m")
SCOPE = SequenceScope(tenant="t", salt="s", lora="l")


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


def test_a_text_that_is_absent_is_an_empty_one() -> None:
    assert SCOPE.root(BASE.digest()) != replace(SCOPE, lora="").root(BASE.digest())
    assert replace(SCOPE, tenant="", salt="", lora="").root(BASE.digest()) == SequenceScope().root(BASE.digest())


@pytest.mark.parametrize("length", [0, 16, 33])
def test_what_is_no_digest_is_no_identity(length: int) -> None:
    with pytest.raises(RequestError):
        SCOPE.root(IdentityDigest(bytes(length)))


def test_texts_that_are_no_unicode_are_refused_by_their_field() -> None:
    with pytest.raises(RequestError, match="weights_version"):
        replace(BASE, weights_version="\udfff").digest()
    with pytest.raises(RequestError, match="salt"):
        replace(SCOPE, salt="\udfff").root(BASE.digest())
    with pytest.raises(RequestError, match="tenant"):
        replace(SCOPE, tenant="\udfff").tenant_digest()


def test_the_root_depends_on_the_identity() -> None:
    assert SCOPE.root(BASE.digest()) != SCOPE.root(ModelIdentity(model="n").digest())


def test_tenants_have_digests_of_their_own() -> None:
    assert SequenceScope().tenant_digest() == DEFAULT_TENANT
    digests = {SequenceScope(tenant=name).tenant_digest() for name in ("a", "b", "ab")}
    assert len(digests) == 3
    assert DEFAULT_TENANT not in digests
