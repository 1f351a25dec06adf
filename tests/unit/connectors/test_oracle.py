"""The byte oracle: stable over runs and different for every block."""

import hashlib

from blockyard.connectors.mock.oracle import payload, wrong_bytes
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import ContentKey

IDENTITY = ModelIdentity(model="m").digest()
KEY = ContentKey(bytes(range(16)))


def test_the_stream_is_fixed_for_ever() -> None:
    """Two nodes of different builds must agree on every byte."""
    assert hashlib.sha256(payload(IDENTITY, KEY, 4_096).tobytes()).hexdigest() == (
        "59751d744949b4c30eb1583a7d50c66af19bc8c3574cac249bd84073fa2a5d9b"
    )


def test_a_block_equals_itself_and_no_other() -> None:
    view = payload(IDENTITY, KEY, 4_096)
    assert wrong_bytes(view, IDENTITY, KEY) == 0
    assert wrong_bytes(view, IDENTITY, ContentKey(bytes(16))) > 4_000
    assert wrong_bytes(view, ModelIdentity(model="other").digest(), KEY) > 4_000


def test_a_single_flipped_bit_is_seen() -> None:
    view = payload(IDENTITY, KEY, 4_096).copy()
    view[1_234] ^= 1
    assert wrong_bytes(view, IDENTITY, KEY) == 1
