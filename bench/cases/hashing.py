"""Names of blocks: content keys against SHA-256 alone, KVBM's hashes against XXH3 alone and against Dynamo itself.

What stands on the other side is the least that can give the same values. Content keys are held against the same calls
of SHA-256 with every message ready made. KVBM's hashes are held against a loop without any checks that cuts the tokens
into blocks and chains them, and, without a bar, against the calls of XXH3 alone. All sides do nothing but compute, so
what counts is the time of the processor. Blocks have 16 tokens, as engines have them, and 512, as nodes have them.
"""

import hashlib
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import xxhash

from bench.errors import MissingPeerError, WrongBytesError
from bench.measure import Contest, Measure, Timed, skipped
from bench.peers.chains import tokens
from bench.peers.child import Peer
from blockyard.core.hashing import content_run
from blockyard.core.identity import ModelIdentity, SequenceScope, tagged
from blockyard.core.kvbm_hashing import CHAIN_SEED, KvbmVersion, block_hashes, sequence_hashes

TOKENS: Final = 1 << 17
BLOCK_SIZES: Final = (16, 512)
TIMES: Final = 4
"""Prompts hashed in one round."""
ROUNDS: Final = 15
_DYNAMO: Final = "ai-dynamo-runtime"
_COMPUTE: Final = "Dynamo's compute_block_hash_for_seq"


def run(case: str) -> Iterator[Measure]:
    """Tokens per second of naming a prompt of 131,072 tokens, against SHA-256 and XXH3 alone, and against Dynamo."""
    for block_tokens in BLOCK_SIZES:
        yield _content_keys(case, block_tokens)
        yield from _kvbm_views(case, block_tokens)
        yield _against_dynamo(case, block_tokens)


def _content_keys(case: str, block_tokens: int) -> Measure:
    prompt = np.arange(TOKENS, dtype=np.uint32)
    identity, scope = ModelIdentity(model="bench").digest(), SequenceScope()
    parents = [scope.root(identity), *_digests(content_run(identity, scope, prompt, block_tokens).digests)]
    # Each digest is the parent of the next block.
    messages = [
        b"blockyard block 1\0" + tagged("parent", parent) + tagged("tokens", content)
        for parent, content in zip(parents, _cut(prompt, block_tokens), strict=False)
    ]
    sha256 = hashlib.sha256
    if [sha256(message).digest() for message in messages] != parents[1:]:
        raise WrongBytesError("the messages are not those of the content keys")
    return Contest(
        measure=f"content_keys_{block_tokens}",
        unit="tokens",
        ours=lambda: _timed(lambda: content_run(identity, scope, prompt, block_tokens)),
        theirs=lambda: _timed(lambda: [sha256(message).digest() for message in messages]),
        against="the same calls of hashlib.sha256, messages ready made",
        bar=0.7,
    ).run(case, ROUNDS)


def _kvbm_views(case: str, block_tokens: int) -> Iterator[Measure]:
    prompt = np.arange(TOKENS, dtype=np.uint32)
    hash_of = xxhash.xxh3_64_intdigest
    pack = struct.Struct("<QQ").pack
    contents = _cut(prompt, block_tokens)
    pairs = [pack(number, number) for number in range(len(contents))]

    def calls_alone() -> None:
        [hash_of(content, CHAIN_SEED) for content in contents]
        [hash_of(pair, CHAIN_SEED) for pair in pairs]

    if _views(prompt, block_tokens) != _bare_views(prompt, block_tokens):
        raise WrongBytesError("the bare loop gives other hashes")
    yield Contest(
        measure=f"kvbm_views_{block_tokens}",
        unit="tokens",
        ours=lambda: _timed(lambda: _views(prompt, block_tokens)),
        theirs=lambda: _timed(lambda: _bare_views(prompt, block_tokens)),
        against="a loop over xxhash.xxh3_64_intdigest without checks",
        bar=0.7,
    ).run(case, ROUNDS)
    yield Contest(
        measure=f"kvbm_calls_{block_tokens}",
        unit="tokens",
        ours=lambda: _timed(lambda: _views(prompt, block_tokens)),
        theirs=lambda: _timed(calls_alone),
        against="the same calls of xxhash.xxh3_64_intdigest, bytes ready made",
    ).run(case, ROUNDS)


def _against_dynamo(case: str, block_tokens: int) -> Measure:
    measure, seed = f"dynamo_{block_tokens}", 1
    prompt = tokens(TOKENS, seed=seed)

    try:
        with Peer("dynamo_hashes", _DYNAMO, prompt_tokens=TOKENS, block_tokens=block_tokens, seed=seed) as peer:
            if peer.ask("hashes") != block_hashes(prompt, block_tokens, CHAIN_SEED):
                raise WrongBytesError("Dynamo gives other hashes")
            return Contest(
                measure=measure,
                unit="tokens",
                ours=lambda: _timed(lambda: block_hashes(prompt, block_tokens, CHAIN_SEED)),
                theirs=lambda: peer.round("hash", times=TIMES),
                against=f"{_COMPUTE} {peer.version}",
                bar=0.5,
                stretch=1.0,
            ).run(case, ROUNDS)
    except MissingPeerError as missing:
        return skipped(case, measure, _COMPUTE, str(missing))


def _timed(work: Callable[[], object]) -> Timed:
    begin = time.thread_time()
    for _ in range(TIMES):
        work()
    return Timed(TIMES * TOKENS, time.thread_time() - begin)


def _views(prompt: np.ndarray, block_tokens: int) -> tuple[list[int], list[int]]:
    blocks = block_hashes(prompt, block_tokens, CHAIN_SEED)
    return blocks, sequence_hashes(blocks, KvbmVersion.V2, CHAIN_SEED)


def _bare_views(prompt: np.ndarray, block_tokens: int) -> tuple[list[int], list[int]]:
    data, stride = prompt.tobytes(), 4 * block_tokens
    hash_of, pack = xxhash.xxh3_64_intdigest, struct.Struct("<QQ").pack
    blocks = [hash_of(data[start : start + stride], CHAIN_SEED) for start in range(0, len(data), stride)]
    current = blocks[0]
    sequence = [current]
    for block in blocks[1:]:
        current = hash_of(pack(current, block), CHAIN_SEED)
        sequence.append(current)
    return blocks, sequence


def _cut(prompt: np.ndarray, block_tokens: int) -> list[bytes]:
    return [row.tobytes() for row in prompt.reshape(-1, block_tokens)]


def _digests(joined: bytes) -> list[bytes]:
    return [joined[start : start + 32] for start in range(0, len(joined), 32)]
