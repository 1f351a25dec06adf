"""Checksums of payloads and records: xxh3, stored little-endian.

One pass over the bytes per hop: where bytes are copied, the copy runs in chunks small enough to stay in the cache and
each chunk is hashed right after it was written, so the hash is that of the destination.
Invariants: the result depends on the bytes alone, never on chunk size or alignment.
Threading: pure functions; the copy and the hash let other threads run while they work.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

from blockyard.core.errors import BlockSizeMismatchError

CHECKSUM_BYTES: Final = 16
COPY_CHUNK_BYTES: Final = 256 << 10
"""Chunk of ``copy_and_hash``: fits the second-level cache of one core together with its source."""

ByteArray = npt.NDArray[np.uint8]
ReadableBuffer = bytes | bytearray | memoryview
"""Contiguous bytes; of an array, its ``data``."""


def payload_checksum(payload: ReadableBuffer) -> bytes:
    """xxh3-128 of ``payload``: 16 bytes, little-endian."""
    return xxhash.xxh3_128_intdigest(payload).to_bytes(CHECKSUM_BYTES, "little")


def record_checksum(*parts: ReadableBuffer) -> int:
    """xxh3-64 of the parts one after the other."""
    state = xxhash.xxh3_64()
    for part in parts:
        state.update(part)
    return state.intdigest()


def copy_and_hash(destination: ByteArray, source: ByteArray) -> bytes:
    """Copy ``source`` over ``destination`` and hash what was written.

    Args:
        destination: writable, contiguous bytes; same length as ``source``.
        source: contiguous bytes; may be changed by others meanwhile, the result is that of the destination.

    Returns:
        The checksum of the destination's bytes.

    Raises:
        BlockSizeMismatchError: the lengths differ; nothing was written.
    """
    size = len(destination)
    if size != len(source):
        raise BlockSizeMismatchError("copy between different lengths", destination=size, source=len(source))
    state = xxhash.xxh3_128()
    for start in range(0, size, COPY_CHUNK_BYTES):
        chunk = destination[start : start + COPY_CHUNK_BYTES]
        np.copyto(chunk, source[start : start + COPY_CHUNK_BYTES])
        state.update(chunk.data)
    return state.intdigest().to_bytes(CHECKSUM_BYTES, "little")


def hash_pieces(pieces: Iterable[ByteArray]) -> bytes:
    """The checksum of contiguous pieces one after the other, each hashed as soon as it is handed over."""
    state = xxhash.xxh3_128()
    for piece in pieces:
        state.update(piece.data)
    return state.intdigest().to_bytes(CHECKSUM_BYTES, "little")
