"""Canonical CBOR: examples of the standard, and the same bytes from both ways to write integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.cbor import Value, encode, encode_tokens
from blockyard.core.errors import RequestError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "00"),
        (1, "01"),
        (10, "0a"),
        (23, "17"),
        (24, "1818"),
        (100, "1864"),
        (1000, "1903e8"),
        (1000000, "1a000f4240"),
        (1000000000000, "1b000000e8d4a51000"),
        (18446744073709551615, "1bffffffffffffffff"),
        (-18446744073709551616, "3bffffffffffffffff"),
        (-1, "20"),
        (-10, "29"),
        (-100, "3863"),
        (-1000, "3903e7"),
        (None, "f6"),
        (b"", "40"),
        (b"\x01\x02\x03\x04", "4401020304"),
        ("", "60"),
        ("IETF", "6449455446"),
        ("ü", "62c3bc"),
        ("水", "63e6b0b4"),
        ((), "80"),
        ((1, 2, 3), "83010203"),
        ((1, (2, 3), (4, 5)), "8301820203820405"),
        (tuple(range(1, 26)), "98190102030405060708090a0b0c0d0e0f101112131415161718181819"),
    ],
)
def test_examples_of_the_standard(value: Value, expected: str) -> None:
    """RFC 8949, appendix A, where it has values of these kinds."""
    assert encode(value).hex() == expected


@given(st.lists(st.integers(0, 32).flatmap(lambda bits: st.integers(0, (1 << bits) - 1)), max_size=30))
def test_many_integers_are_the_integers_one_by_one(tokens: list[int]) -> None:
    content, places = encode_tokens(np.array(tokens, np.uint32))
    items = [content[start:stop] for start, stop in zip(places, places[1:], strict=False)]
    assert items == [encode(token) for token in tokens]
    assert places[0] == 0
    assert places[-1] == len(content)


@pytest.mark.parametrize("value", [2**64, -(2**64) - 1, "\ud800"], ids=["large", "small", "no Unicode"])
def test_what_has_no_encoding_is_refused(value: Value) -> None:
    with pytest.raises(RequestError):
        encode((value,))
