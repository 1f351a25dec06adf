"""Tokens of a sequence, and the bytes by which every name of a block takes them in: unsigned, 32 bits, little-endian.

Threading: pure functions.
"""

import sys
from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from blockyard.core.errors import RequestError
from blockyard.core.whole_numbers import require_whole

TOKEN_BYTES: Final = 4
MAX_TOKEN: Final = 2**32 - 1
MAX_BLOCK_TOKENS: Final = 2**24
"""More than any sequence has."""

Tokens = Sequence[int] | npt.NDArray[np.integer[Any]]


def packed_tokens(tokens: Tokens) -> memoryview:
    """Tokens as little-endian u32, byte by byte; of an array that holds them so already, its own memory.

    Raises:
        RequestError: a token is not an integer from 0 to 2**32 - 1.
    """
    if isinstance(tokens, np.ndarray):
        return _packed_array(tokens)
    if isinstance(tokens, (bytes, bytearray, memoryview)):
        # An array would take their bytes as they lie in memory, several to a token.
        raise RequestError("tokens are integers, not packed bytes", type=type(tokens).__name__)
    try:
        if isinstance(tokens, list):
            packed = array("I")
            packed.fromlist(tokens)  # a third faster than from any other sequence
        else:
            packed = array("I", tokens)
    except (OverflowError, TypeError) as error:
        raise RequestError("a token is not an unsigned 32-bit integer", type=type(tokens).__name__) from error
    if sys.byteorder == "big":
        packed.byteswap()
    return memoryview(packed).cast("B")


def _packed_array(tokens: npt.NDArray[np.integer[Any]]) -> memoryview:
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise RequestError("tokens are one row of integers", dtype=str(tokens.dtype), dimensions=tokens.ndim)
    limits = np.iinfo(tokens.dtype)
    # Most types cannot hold what is refused here, so most arrays are not read for it.
    too_small = limits.min < 0 and tokens.size and int(tokens.min()) < 0
    if too_small or (limits.max > MAX_TOKEN and tokens.size and int(tokens.max()) > MAX_TOKEN):
        raise RequestError("a token is not an unsigned 32-bit integer", dtype=str(tokens.dtype))
    return np.ascontiguousarray(tokens, "<u4").view(np.uint8).data


def block_bytes(block_tokens: int) -> int:
    """Bytes of the tokens of one block.

    Raises:
        RequestError: a block without tokens, or with more than ``MAX_BLOCK_TOKENS``.
    """
    require_whole("tokens of a block", block_tokens, 1, MAX_BLOCK_TOKENS)
    return block_tokens * TOKEN_BYTES
