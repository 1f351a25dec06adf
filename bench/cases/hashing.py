"""Content keys against the raw speed of SHA-256."""

import hashlib
from collections.abc import Iterator
from typing import Final

import numpy as np

from bench.measure import Contest, Measure
from blockyard.core.hashing import content_run
from blockyard.core.identity import ModelIdentity, SequenceScope

TOKENS: Final = 1 << 17
BLOCK_TOKENS: Final = 512


def run(case: str) -> Iterator[Measure]:
    """Tokens per second of hashing a prompt of 131,072 tokens in blocks of 512, against SHA-256 over the same bytes."""
    tokens = np.arange(TOKENS, dtype=np.uint32)
    data = tokens.tobytes()
    identity = ModelIdentity(model="bench").digest()

    def ours() -> float:
        content_run(identity, SequenceScope(), tokens, BLOCK_TOKENS)
        return TOKENS

    def theirs() -> float:
        hashlib.sha256(data).digest()
        return TOKENS

    yield Contest(measure="content_keys", unit="tokens", ours=ours, theirs=theirs, against="one hashlib.sha256").run(
        case
    )
