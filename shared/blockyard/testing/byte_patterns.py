"""Bytes that tell where they came from: every seed gives other content, and any shift or mix shows.

Threading: pure functions.
"""

import numpy as np

from blockyard.core.vocabulary import (
    ROOT_KEY,
    BlockId,
    ChainDigest,
    ContentKey,
    Generation,
    IdentityDigest,
)
from blockyard.tiers.checksum import ByteArray, payload_checksum
from blockyard.tiers.header import SlotHeader

_MULTIPLIER = 0x9E37_79B9_7F4A_7C15
SOME_IDENTITY = IdentityDigest(b"identity of a test model".ljust(32, b"."))


def pattern(seed: int, size: int) -> ByteArray:
    """``size`` bytes that belong to ``seed``; each 8-byte word differs from its neighbours and from other seeds'."""
    words = np.arange(-(-size // 8), dtype=np.uint64) + np.uint64((seed + 1) * 0x1_0000_0001 & 0xFFFF_FFFF_FFFF)
    mixed: ByteArray = (words * np.uint64(_MULTIPLIER)).view(np.uint8)[:size]
    return mixed


def digest_of(seed: int) -> ChainDigest:
    """A chain digest that belongs to ``seed``."""
    return ChainDigest(pattern(seed, 32).tobytes())


def header_of(
    seed: int,
    payload: ByteArray,
    *,
    file_id: bytes,
    slot: int,
    generation: int = 1,
    parent: ContentKey = ROOT_KEY,
    position: int = 0,
) -> SlotHeader:
    """Header of the block ``seed`` for a copy whose bytes are ``payload``."""
    return SlotHeader(
        generation=Generation(generation),
        identity=SOME_IDENTITY,
        digest=digest_of(seed),
        parent=parent,
        position=position,
        payload_bytes=len(payload),
        checksum=payload_checksum(payload.data),
        slot=BlockId(slot),
        file_id=file_id,
    )
