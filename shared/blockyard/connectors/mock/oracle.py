"""Byte oracle: the payload of a block as a pure function of identity and content key.

The demo engine "computes" a block by filling it from here, and checks every loaded block against it, so a single wrong
byte anywhere between G1 and G4 shows. The stream is Philox (Salmon et al., SC'11), whose raw output numpy keeps stable
over versions, keyed by XXH3-128 of identity digest and content key.
Threading: pure functions.
"""

import numpy as np
import numpy.typing as npt
import xxhash

from blockyard.core.vocabulary import ContentKey, IdentityDigest

_WORD_BYTES = 8


def payload(identity: IdentityDigest, key: ContentKey, size_bytes: int) -> npt.NDArray[np.uint8]:
    """Bytes of a block of ``size_bytes`` (a multiple of 8)."""
    seed = int.from_bytes(xxhash.xxh3_128_digest(identity + key), "little")
    words = np.random.Philox(key=seed).random_raw(size_bytes // _WORD_BYTES)
    return words.view(np.uint8)


def wrong_bytes(view: npt.NDArray[np.uint8], identity: IdentityDigest, key: ContentKey) -> int:
    """How many bytes of ``view`` differ from what the block must hold."""
    return int(np.count_nonzero(view != payload(identity, key, view.size)))
