"""Hashes of NVIDIA Dynamo's KVBM, bit for bit: views for its routers and for parity, never enough for a hit.

With H(x, seed) = XXH3-64, tokens as little-endian u32 and i counting blocks::

    block hash     B[i] = H(tokens of block i, salt hash)
    sequence hash  S[0] = B[0];  S[i] = H(LE64(S[i-1]) ‖ LE64(B[i]), chain seed)
    lineage hash   mode 2 ‖ position P ‖ S[i] 64 ‖ low R bits of S[i-1]        128 bits, big-endian

Two generations exist and never agree in production: they differ in the salt hash and in the chain seed, and nothing in
the values tells them apart. So every function takes or implies a ``KvbmVersion``.
A block that overlaps a multimodal run takes 13 bytes per token instead of 4, so it can never equal a text block.
Invariants: 64-bit values are unsigned; a lineage hash is compared as a whole, since siblings under different parents
can agree in position and parent fragment.
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
from blockyard.core.hashing import TOKEN_BYTES, Tokens, token_bytes

CHAIN_SEED: Final = 1337
_MASK_64: Final = 2**64 - 1
_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
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
    """Seed of the block hashes; an empty string counts as absent."""
    if version is KvbmVersion.V1:
        present = {name: value for name, value in (("salt", salt), ("lora_name", lora)) if value}
        return _xxh3(json.dumps(present, separators=(",", ":"), ensure_ascii=False).encode(), 0)
    seed = CHAIN_SEED
    if lora:
        seed += _xxh3(lora.encode(), 0)
    if salt:
        seed += _xxh3(salt.encode(), 1)
    return seed & _MASK_64


# --- block and sequence hashes ------------------------------------------------------------------------------------
def block_hashes(tokens: Tokens, block_tokens: int, seed: int, media: Sequence[MediaRun] = ()) -> list[int]:
    """Hash of every whole block of a sequence.

    Args:
        tokens: the sequence from its first token on; values under a media run do not matter.
        block_tokens: tokens per block.
        seed: the salt hash.
        media: runs, in token positions of this sequence.

    Raises:
        RequestError: a token is no u32; a run is empty, out of bounds, or overlaps another.
    """
    if block_tokens < 1:
        raise RequestError("a block holds at least one token", block_tokens=block_tokens)
    runs = _checked_runs(media, len(tokens))
    packed = memoryview(token_bytes(tokens))
    stride = block_tokens * TOKEN_BYTES
    hashes = []
    for index in range(len(tokens) // block_tokens):
        first = index * block_tokens
        overlapping = [run for run in runs if run.first_token < first + block_tokens and _end(run) > first]
        content = packed[index * stride : (index + 1) * stride]
        hashes.append(_xxh3(_media_slots(content, first, overlapping) if overlapping else content, seed))
    return hashes


def sequence_hashes(blocks: Iterable[int], version: KvbmVersion, seed: int) -> list[int]:
    """Chain block hashes; ``seed`` is the salt hash, which only v1 uses for the chain too."""
    chain_seed = seed if version is KvbmVersion.V1 else CHAIN_SEED
    hashes: list[int] = []
    for block in blocks:
        hashes.append(_xxh3(_PAIR.pack(hashes[-1], block), chain_seed) if hashes else block)
    return hashes


def router_block_hash(tokens: Tokens, media_hashes: Iterable[int] = (), seed: int = CHAIN_SEED) -> int:
    """Hash of one block as Dynamo's router computes it: sorted media hashes follow the raw tokens."""
    media = b"".join(value.to_bytes(8, "little") for value in sorted(media_hashes))
    return _xxh3(token_bytes(tokens) + media, seed)


# --- positional lineage hash --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Layout:
    mode: int
    position_bits: int
    fragment_bits: int


_LAYOUTS: Final = (_Layout(0, 8, 54), _Layout(1, 16, 46), _Layout(2, 24, 38))


def _layout(position: int) -> _Layout:
    for layout in _LAYOUTS:
        if 0 <= position < 1 << layout.position_bits:
            return layout
    raise RequestError("a lineage hash has positions from 0 to 2**24 - 1", position=position)


@dataclass(frozen=True, slots=True, order=True)
class PositionalLineageHash:
    """Position, own sequence hash and a fragment of the parent's; ordered by these, in this order."""

    position: int
    current: int
    parent_fragment: int = 0

    def __post_init__(self) -> None:
        """Refuse what does not fit into 128 bits."""
        bits = _layout(self.position).fragment_bits
        if not (0 <= self.current <= _MASK_64 and 0 <= self.parent_fragment < 1 << bits):
            raise RequestError("a part of the lineage hash is out of range", position=self.position)

    @classmethod
    def of(cls, position: int, current: int, parent: int | None = None) -> "PositionalLineageHash":
        """Hash of the block at ``position``; ``parent`` is the sequence hash before it, ``None`` for a root."""
        return cls(position, current, 0 if parent is None else _fragment(parent, position))

    def extend(self, current: int) -> "PositionalLineageHash":
        """Hash of a child whose sequence hash is ``current``."""
        return PositionalLineageHash.of(self.position + 1, current, self.current)

    def fragment_for_child(self, position: int) -> int:
        """What a child at ``position`` holds of this hash."""
        return _fragment(self.current, position)

    def __int__(self) -> int:
        """The 128-bit value."""
        layout = _layout(self.position)
        head = layout.mode << layout.position_bits | self.position
        return (head << 64 | self.current) << layout.fragment_bits | self.parent_fragment

    def to_bytes(self) -> bytes:
        """16 bytes, big-endian."""
        return int(self).to_bytes(16, "big")

    @classmethod
    def from_bytes(cls, data: bytes) -> "PositionalLineageHash":
        """Inverse of ``to_bytes``.

        Raises:
            RequestError: not 16 bytes, or a mode that does not exist.
        """
        value = int.from_bytes(data, "big")
        mode = value >> 126
        if len(data) != 16 or mode >= len(_LAYOUTS):
            raise RequestError("not a lineage hash", length=len(data), mode=mode)
        layout = _LAYOUTS[mode]
        position = value >> (64 + layout.fragment_bits) & ((1 << layout.position_bits) - 1)
        if _layout(position) is not layout:
            raise RequestError("the position of a lineage hash is not in its shortest form", position=position)
        return cls(position, value >> layout.fragment_bits & _MASK_64, value & ((1 << layout.fragment_bits) - 1))

    def __str__(self) -> str:
        """``position:current[:parent fragment]`` in base 58, as KVBM names objects; roots have no third part."""
        parts = [str(self.position), _base58(self.current)]
        if self.position:
            parts.append(_base58(self.parent_fragment))
        return ":".join(parts)


def lineage_hashes(
    sequence: Sequence[int], *, first_position: int = 0, parent: int | None = None
) -> list[PositionalLineageHash]:
    """Lineage hashes of consecutive sequence hashes; ``parent`` is the one before them, ``None`` at a root."""
    parents = [parent, *sequence[:-1]]
    return [
        PositionalLineageHash.of(first_position + index, current, before)
        for index, (current, before) in enumerate(zip(sequence, parents, strict=False))
    ]


def positional_sequence_hash(position: int, sequence: int, block: int) -> int:
    """Older 128-bit form: mode 2 ‖ position ‖ low bits of the block hash, then the 64-bit sequence hash."""
    for mode, (position_bits, block_bits) in enumerate(((8, 54), (16, 46), (24, 38), (31, 31))):
        if 0 <= position < 1 << position_bits:
            head = (mode << position_bits | position) << block_bits | block & ((1 << block_bits) - 1)
            return head << 64 | sequence
    raise RequestError("a positional sequence hash has positions from 0 to 2**31 - 1", position=position)


# --- encoding -----------------------------------------------------------------------------------------------------
def _xxh3(data: bytes | memoryview, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(data, seed)


def _fragment(parent: int, child_position: int) -> int:
    return parent & ((1 << _layout(child_position).fragment_bits) - 1)


def _end(run: MediaRun) -> int:
    return run.first_token + run.tokens


def _media_slots(content: memoryview, first_token: int, runs: Sequence[MediaRun]) -> bytes:
    """13 bytes per token: text = 0, token, 0; placeholder = 1, offset within its run, media hash."""
    slots = [_TEXT_SLOT.pack(0, token, 0) for (token,) in struct.iter_unpack("<I", content)]
    for run in runs:
        for position in range(max(run.first_token, first_token), min(_end(run), first_token + len(slots))):
            slots[position - first_token] = _TEXT_SLOT.pack(1, position - run.first_token, run.media_hash)
    return b"".join(slots)


def _checked_runs(media: Sequence[MediaRun], tokens: int) -> list[MediaRun]:
    runs = sorted(media, key=lambda run: run.first_token)
    end = 0
    for run in runs:
        if run.tokens < 1 or run.first_token < 0 or _end(run) > tokens:
            raise RequestError("a media run is empty or out of bounds", first_token=run.first_token, tokens=run.tokens)
        if not 0 <= run.media_hash <= _MASK_64:
            raise RequestError("a media hash is an unsigned 64-bit integer", first_token=run.first_token)
        if run.first_token < end:
            raise RequestError("media runs overlap", first_token=run.first_token)
        end = _end(run)
    return runs


def _base58(value: int) -> str:
    """Base 58 (Bitcoin alphabet) of the value as 8 big-endian bytes: a leading zero byte is a ``1``."""
    leading_zeros = 8 - (value.bit_length() + 7) // 8
    digits = ""
    while value:
        value, digit = divmod(value, 58)
        digits = _BASE58[digit] + digits
    return _BASE58[0] * leading_zeros + digits
