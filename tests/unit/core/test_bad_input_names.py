"""Names of blocks are made of what they are meant to be made of: anything else is refused with fields.

A float, a truth value or a word in the place of a number would otherwise give names that nobody else makes.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.unit.core.state_of import state_of

from blockyard.core import sglang_chain
from blockyard.core.chain_run import MAX_CHAIN_BLOCKS, ChainRun
from blockyard.core.engine_names import EngineNames, row_hashes
from blockyard.core.errors import RequestError
from blockyard.core.hashing import ChainHasher
from blockyard.core.identity import ModelIdentity, MultimodalRun, SequenceScope
from blockyard.core.kvbm_hashing import (
    KvbmVersion,
    MediaRun,
    block_hashes,
    router_block_hash,
    salt_hash,
    sequence_hashes,
)
from blockyard.core.lineage_hash import PositionalLineageHash, positional_sequence_hash
from blockyard.core.stored_key import stored_key
from blockyard.core.vllm_chain import VllmChain, VllmHash, VllmMedium, VllmScope
from blockyard.core.vocabulary import ContentKey, IdentityDigest

Take = Callable[[Any], object]
IDENTITY = IdentityDigest(bytes(32))
PLAIN = SequenceScope()
TOKENS = [1, 2, 3, 4]
CBOR, PICKLE = VllmChain(VllmHash.SHA256_CBOR, 4), VllmChain(VllmHash.SHA256, 4)
HALF_A_PAIR = "\ud800"

NO_TOKENS: dict[str, Any] = {
    "negative": [-1],
    "too large": [2**64],
    "float": [1.5],
    "nan": [math.nan],
    "infinity": [math.inf],
    "text": ["a"],
    "bytes": b"abcd",
    "none": None,
    "two dimensions": np.zeros((2, 2), int),
    "array of floats": np.zeros(4),
    "array of truth values": np.array([True] * 4),
    "surrogate": HALF_A_PAIR,
}
NO_NUMBERS: dict[str, Any] = {
    "negative": -1,
    "too large": 2**64,
    "float": 1.5,
    "nan": math.nan,
    "infinity": math.inf,
    "true": True,
    "text": "1",
    "none": None,
}
NO_DIGESTS: dict[str, Any] = {"short": b"x", "long": bytes(33), "text": "a" * 32, "number": 5, "none": None}
NO_TEXTS: dict[str, Any] = {"bytes": b"x", "number": 5, "nan": math.nan, "none": None}


def hasher() -> ChainHasher:
    return ChainHasher(IDENTITY, PLAIN, 4)


def vllm_media(**fields: Any) -> list[bytes]:
    medium = VllmMedium(**{"identifier": "m", "first_token": 0, "tokens": 1, **fields})
    return CBOR.block_hashes(TOKENS, VllmScope(media=(medium,)))


def media(**fields: Any) -> ChainRun:
    run = MultimodalRun(**{"first_token": 0, "tokens": 1, "content_digest": b"m", **fields})
    return ChainHasher(IDENTITY, SequenceScope(multimodal=(run,)), 4).append(TOKENS)


def kvbm_media(**fields: Any) -> list[int]:
    return block_hashes(TOKENS, 4, 0, [MediaRun(**{"first_token": 0, "tokens": 1, "media_hash": 1, **fields})])


TAKES_TOKENS: dict[str, Take] = {
    "chain": lambda tokens: hasher().append(tokens),
    "vllm pickle": PICKLE.block_hashes,
    "vllm cbor": CBOR.block_hashes,
    "sglang": lambda tokens: sglang_chain.page_hashes(tokens, 4),
    "kvbm": lambda tokens: block_hashes(tokens, 4, 0),
    "kvbm router": router_block_hash,
}
TAKES_A_NUMBER: dict[str, Take] = {
    "chain, block": lambda value: ChainHasher(IDENTITY, PLAIN, value),
    "vllm, block": lambda value: VllmChain(VllmHash.SHA256, value),
    "sglang, page": lambda value: sglang_chain.page_hashes(TOKENS, value),
    "kvbm, block": lambda value: block_hashes(TOKENS, value, 0),
    "kvbm, seed": lambda value: block_hashes(TOKENS, 4, value),
    "kvbm, block hash": lambda value: sequence_hashes([value], KvbmVersion.V2, 0),
    "kvbm router, media": lambda value: router_block_hash(TOKENS, [value]),
    "kvbm media, hash": lambda value: kvbm_media(media_hash=value),
    "kvbm media, tokens": lambda value: kvbm_media(tokens=value),
    "kvbm media, first": lambda value: kvbm_media(first_token=value),
    "lineage, current": lambda value: PositionalLineageHash.of(0, value),
    "lineage, position": lambda value: PositionalLineageHash.of(value, 1),
    "lineage, fragment": lambda value: PositionalLineageHash(1, 1, value),
    "positional, position": lambda value: positional_sequence_hash(value, 1, 1),
    "positional, sequence": lambda value: positional_sequence_hash(1, value, 1),
    "media, tokens": lambda value: media(tokens=value),
    "media, first": lambda value: media(first_token=value),
    "vllm media, tokens": lambda value: vllm_media(tokens=value),
    "vllm media, first": lambda value: vllm_media(first_token=value),
    "vllm, first block": lambda value: CBOR.block_hashes(TOKENS, first_block=value, parent=bytes(32)),
    "sglang media, tokens": lambda value: sglang_chain.media_tokens(bytes(32), value),
    "run, position": lambda value: ChainRun(bytes(32), value, ContentKey(b"p" * 16)),
    "run, slice start": lambda value: ChainRun(bytes(64)).slice(value, 2),
    "run, slice end": lambda value: ChainRun(bytes(64)).slice(0, value),
    "stored key, group": lambda value: stored_key(ContentKey(bytes(16)), value),
    "row hashes, per row": lambda value: row_hashes([bytes(32)] * 4, value, 0, 1),
}
TAKES_A_DIGEST: dict[str, Take] = {
    "chain, identity": lambda value: ChainHasher(value, PLAIN, 4),
    "vllm, parent": lambda value: CBOR.block_hashes(TOKENS, first_block=1, parent=value),
    "engine names, identity": EngineNames,
    "lineage": PositionalLineageHash.from_bytes,
    "run, digests": lambda value: ChainRun(b"" if value is None else value, 1, ContentKey(b"")),
    "run, parent": lambda value: ChainRun(bytes(32), 1, value),
}
TAKES_A_TEXT: dict[str, Take] = {
    "tenant": lambda text: SequenceScope(tenant=text).root(IDENTITY),
    "salt": lambda text: SequenceScope(salt=text).root(IDENTITY),
    "lora": lambda text: SequenceScope(lora=text).root(IDENTITY),
    "vllm, lora": lambda text: CBOR.block_hashes(TOKENS, VllmScope(lora_name=text)),
    "vllm, salt": lambda text: CBOR.block_hashes(TOKENS, VllmScope(cache_salt=text)),
    "vllm, medium": lambda text: vllm_media(identifier=text),
    "vllm, seed": lambda text: VllmChain(VllmHash.SHA256_CBOR, 4, text),
    "kvbm, lora": lambda text: salt_hash(KvbmVersion.V1, lora=text),
    "kvbm, salt": lambda text: salt_hash(KvbmVersion.V2, salt=text),
}
KINDS = {
    "tokens": (TAKES_TOKENS, NO_TOKENS),
    "number": (TAKES_A_NUMBER, NO_NUMBERS),
    "digest": (TAKES_A_DIGEST, NO_DIGESTS),
    "text": (TAKES_A_TEXT, {**NO_TEXTS, "surrogate": HALF_A_PAIR}),
    "algorithm": (
        {
            "vllm": lambda word: VllmChain(word, 4),
            "kvbm chain": lambda word: sequence_hashes([1], word, 0),
            "kvbm salt": lambda word: salt_hash(word),
        },
        {"word": "sha512", "number": 1, "none": None},
    ),
}
CASES = [
    pytest.param(take, value, id=f"{verb}: {name}")
    for verbs, values in KINDS.values()
    for verb, take in verbs.items()
    for name, value in values.items()
]


@pytest.mark.parametrize(("take", "value"), CASES)
def test_what_no_name_is_made_of_is_refused_with_fields(take: Take, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        take(value)
    assert caught.value.fields


@pytest.mark.parametrize("tokens", NO_TOKENS.values(), ids=NO_TOKENS)
def test_a_refused_piece_leaves_a_growing_sequence_as_it_was(tokens: Any) -> None:
    growing = hasher()
    growing.append([1, 2, 3, 4, 5])
    before = state_of(growing)
    with pytest.raises(RequestError):
        growing.append(tokens)
    with pytest.raises(RequestError):
        growing.append([6], (MultimodalRun(first_token=0, tokens=1, content_digest=b"late"),))
    assert state_of(growing) == before
    assert growing.append([6, 7, 8]).digests == hasher().append(range(1, 9)).digests[32:]


@pytest.mark.parametrize("first", [MAX_CHAIN_BLOCKS - 1, MAX_CHAIN_BLOCKS])
def test_a_chain_is_not_longer_than_its_positions_go(first: int) -> None:
    with pytest.raises(RequestError) as caught:
        ChainRun(bytes(64), first, ContentKey(b"p" * 16))
    assert caught.value.fields == {"position": first, "blocks": 2}


def test_an_identity_says_which_of_its_texts_is_none() -> None:
    with pytest.raises(RequestError) as caught:
        ModelIdentity(model=HALF_A_PAIR).digest()
    assert caught.value.fields == {"field": "model"}
