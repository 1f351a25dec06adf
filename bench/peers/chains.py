"""The blocks that both sides of a comparison hold: the same numbers from the same seed.

Standard library only: peers' programs use it too. Threading: pure functions.
"""

import random


def block_hashes(chain: int, depth: int, *, seed: int) -> list[int]:
    """Unsigned 63-bit numbers of the blocks of one chain, in order; chains share none, but for chance.

    Args:
        chain: number of the chain.
        depth: its blocks.
        seed: other seeds give other chains.
    """
    drawn = random.Random(seed * 1_000_003 + chain)
    return [drawn.getrandbits(63) for _ in range(depth)]


def digests(chain: int, depth: int, *, seed: int) -> list[bytes]:
    """Names of 32 bytes of the blocks of one chain, in order, as a chain of cryptographic hashes has them."""
    drawn = random.Random(seed * 1_000_003 + chain)
    return [drawn.randbytes(32) for _ in range(depth)]


def tokens(count: int, *, seed: int, vocabulary: int = 128_000) -> list[int]:
    """Tokens of one prompt."""
    drawn = random.Random(seed)
    return [drawn.randrange(vocabulary) for _ in range(count)]
