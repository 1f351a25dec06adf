"""Tokens as bytes: equal whatever holds them, refused where they are no tokens."""

import struct
from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.errors import RequestError
from blockyard.core.tokens import block_bytes, packed_tokens

TOKENS = list(range(100, 140))


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_a_token_is_four_bytes_little_endian(tokens: list[int]) -> None:
    assert packed_tokens(tokens) == struct.pack(f"<{len(tokens)}I", *tokens)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.dtype(">i8"), np.uint64])
def test_arrays_and_lists_of_tokens_are_equal(dtype: np.typing.DTypeLike) -> None:
    held = np.array(TOKENS, dtype=dtype)
    assert packed_tokens(held) == packed_tokens(TOKENS) == packed_tokens(tuple(TOKENS))
    assert packed_tokens(array("q", TOKENS)) == packed_tokens(TOKENS)
    assert packed_tokens(range(100, 140)) == packed_tokens(TOKENS)
    assert packed_tokens(held[::2]) == packed_tokens(TOKENS[::2])
    assert packed_tokens(held[:0]) == packed_tokens([])
    assert packed_tokens([]).nbytes == 0


@pytest.mark.parametrize(
    "tokens",
    [
        [-1],
        [2**32],
        [2**64],
        [1.5],
        ["a"],
        [None],
        (-1,),
        (1.5,),
        "abcd",
        None,
        7,
        bytes(8),
        bytearray(3),
        pytest.param(memoryview(bytes(8)), id="memoryview"),
        np.array([-1]),
        np.array([2**32]),
        np.array([1.5]),
        np.array([True]),
        np.array([[1]]),
        np.array(1),
    ],
    ids=repr,
)
def test_what_is_no_token_is_refused(tokens: Any) -> None:
    with pytest.raises(RequestError):
        packed_tokens(tokens)


def test_a_block_holds_at_least_one_token() -> None:
    assert block_bytes(16) == 64
    for size in (0, -1):
        with pytest.raises(RequestError):
            block_bytes(size)


def test_an_array_of_the_right_type_is_not_copied() -> None:
    held = np.array(TOKENS, "<u4")
    packed = packed_tokens(held)
    held[0] = 7
    assert packed[:4].tolist() == [7, 0, 0, 0]
