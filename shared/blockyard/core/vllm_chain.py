"""Block hashes of vLLM, bit for bit, for who has tokens and no engine: routers, planners, tests.

::

    H              SHA-256 over the value, written as pickle (``sha256``) or canonical CBOR (``sha256_cbor``)
    hash[-1]       H(seed)                            the seed is PYTHONHASHSEED of the engine, else a constant
    hash[i]        H((hash[i-1], tokens of block i, extra keys or None))
    extra keys     ("lora", name, path); ("mm", identifier, first token of it, counted from the block's start) for
                   each medium that overlaps the block; ("cache_salt", salt) in block 0 alone

Read in vLLM 0.32 and held to it by tests; engines before 0.32 begin with a random value where there is no seed.
CBOR writes equal values in one way. Pickle does not: a text that occurs twice in a value is written once if both are
the same object, and twice if they are equal only. So ``sha256`` of a block with two equal texts is not a function of
what is in the block; it is refused here, as a text of 64 KiB is, and who needs it has to ask the engine. Prompts given
as embeddings have no tokens and are not covered.
Invariants: hashes are 32 bytes; only whole blocks have one. They do not cover the model: see ``engine_names``.
Threading: pure functions and frozen values; a chain may be shared.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final, final

import numpy as np

from blockyard.core.cbor import array_head, encode, encode_tokens
from blockyard.core.chain_run import MAX_CHAIN_BLOCKS
from blockyard.core.errors import RequestError
from blockyard.core.pickle_form import BlockForms
from blockyard.core.pickle_form import encode as encode_pickle
from blockyard.core.tokens import MAX_TOKEN, Tokens, block_bytes, packed_tokens
from blockyard.core.vocabulary import DIGEST_BYTES
from blockyard.core.whole_numbers import require_bytes, require_kind, require_whole

DEFAULT_SEED: Final = "vllm-none-hash"

ExtraKey = tuple[str, str, str] | tuple[str, str, int] | tuple[str, str]


@unique
class VllmHash(StrEnum):
    """Algorithm, as ``prefix_caching_hash_algo`` names it; those without SHA-256 let others make equal hashes."""

    SHA256 = "sha256"
    SHA256_CBOR = "sha256_cbor"


@unique
class _Word(StrEnum):
    """What stands before the values of an extra key: constants of the engine's code, each one object in its pickles."""

    LORA = "lora"
    MEDIUM = "mm"
    SALT = "cache_salt"


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmMedium:
    """One image, clip or sound of a request."""

    identifier: str
    first_token: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmScope:
    """What a request has besides its tokens; an empty text counts as absent."""

    lora_name: str = ""
    lora_path: str = ""
    cache_salt: str = ""
    media: tuple[VllmMedium, ...] = ()


@final
class VllmChain:
    """Hashes as one engine makes them."""

    def __init__(self, algorithm: VllmHash, block_tokens: int, seed: str = DEFAULT_SEED) -> None:
        """Take the engine's settings.

        Args:
            algorithm: how values become bytes.
            block_tokens: tokens of one hash.
            seed: ``PYTHONHASHSEED`` of the engine's process where it is set.

        Raises:
            RequestError: a block without tokens, or a seed that the algorithm cannot write.
        """
        require_kind("algorithm", algorithm, VllmHash)
        require_kind("seed", seed, str)
        block_bytes(block_tokens)
        self._block_tokens = block_tokens
        self._steps: Callable[..., list[bytes]] = _pickled if algorithm is VllmHash.SHA256 else _in_cbor
        seeded = encode_pickle(seed) if algorithm is VllmHash.SHA256 else encode(seed)
        self.start = hashlib.sha256(seeded).digest()
        """What stands before the first block; the engine calls it NONE_HASH."""

    def block_hashes(
        self, tokens: Tokens, scope: VllmScope = VllmScope(), *, first_block: int = 0, parent: bytes | None = None
    ) -> list[bytes]:
        """Hash of every whole block.

        Args:
            tokens: those of the sequence from ``first_block`` on.
            scope: of the request; media count from the sequence's start.
            first_block: position of the first block of ``tokens``.
            parent: hash of the block before it; ``None`` at position 0.

        Raises:
            RequestError: a token is no u32; a medium is not possible; position and parent do not fit; or the
                algorithm cannot write a text, or not in one way only.
        """
        require_whole("position of a block", first_block, 0, MAX_CHAIN_BLOCKS - 1)
        if (first_block == 0) != (parent is None):
            raise RequestError("only the first block has no parent", position=first_block)
        if parent is not None:
            require_bytes("hash of a block", parent, DIGEST_BYTES)
        numbers = np.frombuffer(packed_tokens(tokens), "<u4")
        blocks = len(numbers) // self._block_tokens
        keys = self._extra_keys(scope, first_block, blocks)
        return self._steps(parent or self.start, numbers, self._block_tokens, keys)

    def _extra_keys(self, scope: VllmScope, first_block: int, blocks: int) -> list[tuple[ExtraKey, ...] | None]:
        """What each block has besides tokens and parent, in the engine's order."""
        for text in (scope.lora_name, scope.lora_path, scope.cache_salt):
            require_kind("text of a scope", text, str)
        lora: tuple[ExtraKey, ...] = ((_Word.LORA, scope.lora_name, scope.lora_path),) if scope.lora_name else ()
        media = _checked(scope.media)
        keys: list[tuple[ExtraKey, ...]] = [lora] * blocks
        size = self._block_tokens
        for medium in media:
            last = (medium.first_token + medium.tokens - 1) // size
            for block in range(max(medium.first_token // size, first_block), min(last + 1, first_block + blocks)):
                keys[block - first_block] += ((_Word.MEDIUM, medium.identifier, medium.first_token - block * size),)
        if scope.cache_salt and first_block == 0 and blocks:
            keys[0] += ((_Word.SALT, scope.cache_salt),)
        return [key or None for key in keys]


def event_hash(block_hash: bytes) -> int:
    """Number by which the engine's KV events name a block, unless they are set to name it by its bytes."""
    return int.from_bytes(block_hash[-8:], "big")


def _in_cbor(
    parent: bytes, numbers: np.ndarray, block_tokens: int, keys: Sequence[tuple[ExtraKey, ...] | None]
) -> list[bytes]:
    content, places = encode_tokens(numbers)
    before = array_head(3) + encode(parent)[:-DIGEST_BYTES]
    between, plain = array_head(block_tokens), encode(None)
    sha256, hashes = hashlib.sha256, []
    for block, key in enumerate(keys):
        inside = content[places[block * block_tokens] : places[(block + 1) * block_tokens]]
        after = plain if key is None else encode(key)
        parent = sha256(before + parent + between + inside + after).digest()
        hashes.append(parent)
    return hashes


def _pickled(
    parent: bytes, numbers: np.ndarray, block_tokens: int, keys: Sequence[tuple[ExtraKey, ...] | None]
) -> list[bytes]:
    form, sha256, hashes = BlockForms(numbers, block_tokens).form, hashlib.sha256, []
    for block, key in enumerate(keys):
        parent = sha256(form(block, parent, key)).digest()
        hashes.append(parent)
    return hashes


def _checked(media: Sequence[VllmMedium]) -> list[VllmMedium]:
    """Media in order of position.

    Raises:
        RequestError: one is empty, before the sequence, without identifier, or overlaps another.
    """
    for medium in media:
        require_kind("identifier of a medium", medium.identifier, str)
        require_whole("first token of a medium", medium.first_token)
        require_whole("tokens of a medium", medium.tokens, 1, MAX_TOKEN)
    ordered = sorted(media, key=lambda medium: medium.first_token)
    end = 0
    for medium in ordered:
        if not medium.identifier:
            raise RequestError("a medium has no identifier", first_token=medium.first_token)
        if medium.first_token < end:
            raise RequestError("media overlap", first_token=medium.first_token)
        end = medium.first_token + medium.tokens
    return ordered
