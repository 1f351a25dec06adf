"""Hashes of NVIDIA Dynamo's KVBM, bit for bit: views for its routers and for parity, never enough for a hit.

With H(x, seed) = XXH3-64, tokens as little-endian u32 and i counting blocks::

    block hash     B[i] = H(tokens of block i, salt hash)
    sequence hash  S[0] = B[0];  S[i] = H(LE64(S[i-1]) ‖ LE64(B[i]), chain seed)

Two generations exist and never agree in production: they differ in the salt hash and in the chain seed, and nothing in
the values tells them apart. So every function takes or implies a ``KvbmVersion``.
A block that overlaps a multimodal run takes 13 bytes per token instead of 4, so it can never equal a text block.
Lineage hashes, made of sequence hashes, stand in ``lineage_hash``.
Invariants: 64-bit values are unsigned.
Threading: pure functions and frozen values.
"""

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

import xxhash

from blockyard.core.errors import RequestError
from blockyard.core.identity import utf8
from blockyard.core.tokens import TOKEN_BYTES, Tokens, block_bytes, packed_tokens
from blockyard.core.whole_numbers import MASK_64, require_kind, require_whole

CHAIN_SEED: Final = 1337
_TEXT_SLOT: Final = struct.Struct("<BIQ")
_PAIR: Final = struct.Struct("<QQ")


@unique
class KvbmVersion(StrEnum):
    """Generation of KVBM whose hashes are computed."""

    V1 = "v1"
    """``lib/llm`` of Dynamo: what its vLLM and TensorRT-LLM connectors use."""
    V2 = "v2"
    """``lib/kv-hashing`` of Dynamo."""


@dataclass(frozen=True, slots=True)
class MediaRun:
    """Consecutive placeholder tokens of one image, clip or sound, with the engine's 64-bit hash of it."""

    first_token: int
    tokens: int
    media_hash: int


# --- salt ---------------------------------------------------------------------------------------------------------
def salt_hash(version: KvbmVersion, *, lora: str = "", salt: str = "") -> int:
    """Seed of the block hashes; an empty string counts as absent.

    Raises:
        RequestError: a text that UTF-8 cannot express.
    """
    require_kind("version", version, KvbmVersion)
    require_kind("lora", lora, str)
    require_kind("salt", salt, str)
    if version is KvbmVersion.V1:
        present = {name: value for name, value in (("salt", salt), ("lora_name", lora)) if value}
        return _xxh3(utf8(json.dumps(present, separators=(",", ":"), ensure_ascii=False), "salt or lora"), 0)
    seed = CHAIN_SEED
    if lora:
        seed += _xxh3(utf8(lora, "lora"), 0)
    if salt:
        seed += _xxh3(utf8(salt, "salt"), 1)
    return seed & MASK_64


# --- block and sequence hashes ------------------------------------------------------------------------------------
def block_hashes(tokens: Tokens, block_tokens: int, seed: int, media: Sequence[MediaRun] = ()) -> list[int]:
    """Hash of every whole block of a sequence.

    Args:
        tokens: the sequence, or whole blocks of it; values under a media run do not matter.
        block_tokens: tokens per block.
        seed: the salt hash.
        media: runs, in token positions of ``tokens``.

    Raises:
        RequestError: a token is no u32 or the seed no u64; a run is empty, out of bounds, or overlaps another.
    """
    stride = block_bytes(block_tokens)
    seed = unsigned_64("seed", seed)
    packed = packed_tokens(tokens)
    runs = _checked_runs(media, len(packed) // TOKEN_BYTES)
    blocks = struct.iter_unpack(f"{stride}s", packed[: len(packed) - len(packed) % stride])
    hash_of = xxhash.xxh3_64_intdigest
    if not runs:
        return [hash_of(content, seed) for (content,) in blocks]
    contents = [content for (content,) in blocks]
    for index, inside in _by_block(runs, block_tokens, len(contents)).items():
        contents[index] = _media_slots(contents[index], index * block_tokens, inside)
    return [hash_of(content, seed) for content in contents]


def sequence_hashes(blocks: Sequence[int], version: KvbmVersion, seed: int, *, parent: int | None = None) -> list[int]:
    """Chain block hashes.

    Args:
        blocks: block hashes in order.
        version: what the chain's steps are seeded with.
        seed: the salt hash, which only v1 uses for the chain too.
        parent: the sequence hash before the first of them, ``None`` at the start of a sequence.

    Raises:
        RequestError: a hash is not an unsigned 64-bit integer.
    """
    require_kind("version", version, KvbmVersion)
    if parent is not None:
        require_whole("parent", parent)
    chain_seed = unsigned_64("seed", seed if version is KvbmVersion.V1 else CHAIN_SEED)
    hash_of, pack = xxhash.xxh3_64_intdigest, _PAIR.pack
    first = [unsigned_64("block hash", block) for block in blocks[:1]] if parent is None else []
    current = first[0] if first else parent
    try:
        return first + [current := hash_of(pack(current, block), chain_seed) for block in blocks[len(first) :]]
    except struct.error as error:
        raise RequestError("a hash is not an unsigned 64-bit integer", reason=str(error)) from error


def router_block_hash(tokens: Tokens, media_hashes: Iterable[int] = (), seed: int = CHAIN_SEED) -> int:
    """Hash of one block as Dynamo's router computes it: sorted media hashes follow the raw tokens.

    Args:
        tokens: those of the block; for a model with an EAGLE draft the one behind it too, so windows overlap by one.
        media_hashes: of what the block overlaps.
        seed: the salt hash of ``v2``.

    Raises:
        RequestError: a token is no u32, or a hash no u64.
    """
    media = b"".join(unsigned_64("media hash", value).to_bytes(8, "little") for value in sorted(media_hashes))
    return _xxh3(bytes(packed_tokens(tokens)) + media, unsigned_64("seed", seed))


# --- encoding -----------------------------------------------------------------------------------------------------
def _xxh3(data: bytes, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(data, seed)


def unsigned_64(what: str, value: int) -> int:
    """The value, where it is one of 64 bits; ``what`` says in the error which one.

    Raises:
        RequestError: it is not.
    """
    require_whole(what, value)
    return value


def _end(run: MediaRun) -> int:
    return run.first_token + run.tokens


def _by_block(runs: Sequence[MediaRun], block_tokens: int, blocks: int) -> dict[int, list[MediaRun]]:
    """Runs by the whole blocks they overlap."""
    inside: dict[int, list[MediaRun]] = {}
    for run in runs:
        for index in range(run.first_token // block_tokens, min((_end(run) - 1) // block_tokens + 1, blocks)):
            inside.setdefault(index, []).append(run)
    return inside


def _media_slots(content: bytes, first_token: int, runs: Sequence[MediaRun]) -> bytes:
    """13 bytes per token: text = 0, token, 0; placeholder = 1, offset within its run, media hash."""
    slots = [_TEXT_SLOT.pack(0, token, 0) for (token,) in struct.iter_unpack("<I", content)]
    for run in runs:
        for position in range(max(run.first_token, first_token), min(_end(run), first_token + len(slots))):
            slots[position - first_token] = _TEXT_SLOT.pack(1, position - run.first_token, run.media_hash)
    return b"".join(slots)


def _checked_runs(media: Sequence[MediaRun], tokens: int) -> list[MediaRun]:
    for run in media:
        require_whole("first token of a medium", run.first_token)
        require_whole("tokens of a medium", run.tokens, 1)
        require_whole("media hash", run.media_hash)
    runs = sorted(media, key=lambda run: run.first_token)
    end = 0
    for run in runs:
        if _end(run) > tokens:
            raise RequestError("a media run is out of bounds", first_token=run.first_token, tokens=run.tokens)
        if run.first_token < end:
            raise RequestError("media runs overlap", first_token=run.first_token)
        end = _end(run)
    return runs
