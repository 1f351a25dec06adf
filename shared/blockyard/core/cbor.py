"""Canonical CBOR (RFC 8949, section 4.2.1) of what block hashes are made of: integers, texts, bytes, None and tuples.

There is one encoding of every value, the shortest, so hashes over it depend on nothing but the value.
Threading: pure functions.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from blockyard.core.errors import RequestError
from blockyard.core.identity import utf8

Value = int | str | bytes | None | tuple["Value", ...]

_NULL: Final = b"\xf6"
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY = range(5)


def encode(value: Value) -> bytes:
    """Bytes of one value.

    Raises:
        RequestError: an integer beyond 64 bits, or a text that UTF-8 cannot express.
    """
    if value is None:
        return _NULL
    if isinstance(value, int):
        return head(_UNSIGNED, value) if value >= 0 else head(_NEGATIVE, -1 - value)
    if isinstance(value, bytes):
        return head(_BYTES, len(value)) + value
    if isinstance(value, str):
        text = utf8(value, "text")
        return head(_TEXT, len(text)) + text
    return array_head(len(value)) + b"".join(encode(item) for item in value)


def array_head(items: int) -> bytes:
    """What stands before the items of an array."""
    return head(_ARRAY, items)


def head(kind: int, number: int) -> bytes:
    """Kind and number in the fewest bytes.

    Raises:
        RequestError: a number beyond 64 bits.
    """
    if number < 24:
        return bytes((kind << 5 | number,))
    for code, size in enumerate((1, 2, 4, 8), start=24):
        if number < 1 << 8 * size:
            return bytes((kind << 5 | code,)) + number.to_bytes(size, "big")
    raise RequestError("CBOR integers have 64 bits")


def encode_tokens(tokens: npt.NDArray[np.uint32]) -> tuple[bytes, list[int]]:
    """Bytes of many small integers one behind the other, and the places where each begins, the end included."""
    sizes = np.ones(len(tokens), np.int64)
    heads = tokens.astype(np.uint8)
    for code, (limit, size) in enumerate(((24, 2), (1 << 8, 3), (1 << 16, 5)), start=24):
        larger = tokens >= limit
        sizes[larger], heads[larger] = size, code
    # Of every integer its head and its four bytes, of which the leading ones are then left out.
    rows = np.empty((len(tokens), 5), np.uint8)
    rows[:, 0] = heads
    rows[:, 1:] = tokens.astype(">u4").view(np.uint8).reshape(-1, 4)
    kept = np.arange(5) >= 6 - sizes[:, None]
    kept[:, 0] = True
    places = np.zeros(len(tokens) + 1, np.int64)
    np.cumsum(sizes, out=places[1:])
    return rows[kept].tobytes(), places.tolist()
