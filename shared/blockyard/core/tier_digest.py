"""Count and digest of what a publisher holds in a tier: two sides compare them instead of the set.

::

    digest = sum over blocks of (first half of the key xor second half), modulo 2^64; halves little-endian

A sum, so that adding and taking away need no order and no look at the rest.
Invariants: equal sets have equal values; different ones have, but for a chance of 2^-64. Threading: frozen values.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from blockyard.core.vocabulary import ContentKey, Tier

_MODULUS: Final = 1 << 64
_HALF: Final = np.dtype("<u8")


@final
@dataclass(frozen=True, slots=True)
class TierDigest:
    """What is held in one tier, over all holders, groups and identities of a publisher."""

    blocks: int = 0
    digest: int = 0

    @classmethod
    def of(cls, keys: Collection[ContentKey]) -> "TierDigest":
        """Of these copies, each named once."""
        halves = np.frombuffer(b"".join(keys), _HALF)
        return cls(len(keys), int(np.add.reduce(halves[0::2] ^ halves[1::2])))

    def joined(self, part: "TierDigest") -> "TierDigest":
        """Together with a set that shares nothing with this one."""
        return TierDigest(self.blocks + part.blocks, (self.digest + part.digest) % _MODULUS)

    def without(self, part: "TierDigest") -> "TierDigest":
        """Without a part of the set."""
        return TierDigest(self.blocks - part.blocks, (self.digest - part.digest) % _MODULUS)


TierDigests = tuple[TierDigest, TierDigest, TierDigest, TierDigest]
"""One per tier, G1 first."""
NOTHING_HELD: Final[TierDigests] = (TierDigest(), TierDigest(), TierDigest(), TierDigest())


def place_of(tier: Tier) -> int:
    """Where a tier stands in columns that have one entry per tier."""
    return tier - Tier.G1
