"""Tokens as bytes: equal whatever holds them, refused where they are no tokens."""

import struct
from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.errors import RequestError
from blockyard.core.tokens import block_bytes, token_bytes

TOKENS = list(range(100, 140))


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_a_token_is_four_bytes_little_endian(tokens: list[int]) -> None:
    assert token_bytes(tokens) == struct.pack(f"<{len(tokens)}I", *tokens)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.dtype(">i8"), np.uint64])
def test_arrays_and_lists_of_tokens_are_equal(dtype: np.typing.DTypeLike) -> None:
    held = np.array(TOKENS, dtype=dtype)
    assert token_bytes(held) == token_bytes(TOKENS) == token_bytes(tuple(TOKENS)) == token_bytes(array("q", TOKENS))
    assert token_bytes(range(100, 140)) == token_bytes(TOKENS)
    assert token_bytes(held[::2]) == token_bytes(TOKENS[::2])
    assert token_bytes(held[:0]) == token_bytes([]) == b""


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
        memoryview(bytes(8)),
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
        token_bytes(tokens)


def test_a_block_holds_at_least_one_token() -> None:
    assert block_bytes(16) == 64
    for size in (0, -1):
        with pytest.raises(RequestError):
            block_bytes(size)
