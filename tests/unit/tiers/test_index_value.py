"""The value of a block in the prefix index, and its form on the wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.errors import MalformedFrameError
from blockyard.core.vocabulary import PackId
from blockyard.tiers.index_value import (
    HEAD_BYTES,
    Locator,
    decode_values,
    decode_wire_locators,
    encode_heads,
    encode_wire_locators,
)

LOCATOR = Locator(PackId(bytes(range(16))), 3, 8, 0x01020304)

locators = st.builds(
    lambda pack, blocks, place, stride: Locator(PackId(pack), place % blocks, blocks, stride),
    st.binary(min_size=16, max_size=16),
    st.integers(1, 64),
    st.integers(0, 63),
    st.integers(1, 2**32 - 1),
)


def test_a_value_has_the_published_bytes() -> None:
    head = encode_heads([LOCATOR], 0x0A0B0C0D)
    assert head == bytes((1, 1, 3, 8, 4, 3, 2, 1, 0x0D, 0x0C, 0x0B, 0x0A, 0, 0, 0, 0)) + bytes(range(16))


@given(st.lists(st.none() | locators, max_size=20))
def test_values_read_back_in_order(wanted: list[Locator | None]) -> None:
    values = [None if locator is None else encode_heads([locator], 1) + bytes(32) for locator in wanted]
    assert decode_values(values) == wanted


def test_many_heads_are_those_of_each() -> None:
    pair = [LOCATOR, Locator(PackId(bytes(16)), 0, 1, 512)]
    assert encode_heads(pair, 9) == encode_heads(pair[:1], 9) + encode_heads(pair[1:], 9)
    assert encode_heads([], 9) == b""


@pytest.mark.parametrize(
    ("offset", "byte"),
    [pytest.param(0, 2, id="version"), pytest.param(1, 0, id="no locator"), pytest.param(2, 8, id="index"),
     pytest.param(3, 65, id="blocks")],
)  # fmt: skip
def test_a_value_without_sense_is_no_locator(offset: int, byte: int) -> None:
    value = bytearray(encode_heads([LOCATOR], 1) + bytes(32))
    value[offset] = byte
    assert decode_values([bytes(value)]) == [None]


@given(st.lists(st.none() | st.binary(max_size=70), max_size=10))
def test_any_bytes_decode_to_something(values: list[bytes | None]) -> None:
    assert len(decode_values(values)) == len(values)


def test_claims_do_not_change_the_locator() -> None:
    head = encode_heads([LOCATOR], 1)
    assert len(head) == HEAD_BYTES
    assert decode_values([head + bytes(range(32))]) == [LOCATOR]


@given(st.lists(st.none() | locators, max_size=20))
def test_wire_locators_read_back_in_order(wanted: list[Locator | None]) -> None:
    assert decode_wire_locators(encode_wire_locators(wanted)) == wanted


def test_a_wire_locator_has_the_published_bytes() -> None:
    expected = bytes(range(16)) + bytes((3, 8, 0, 0, 4, 3, 2, 1)) + bytes(8)
    assert encode_wire_locators([LOCATOR]) == expected


def test_a_cut_column_is_refused() -> None:
    with pytest.raises(MalformedFrameError):
        decode_wire_locators(bytes(33))
