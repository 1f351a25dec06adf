"""Content keys: the SHA-256 chain that names a block together with everything its bytes depend on.

::

    root       = SequenceScope.root(identity)                        identity, tenant, salt, LoRA
    digest[i]  = SHA-256(magic ‖ parent: digest[i-1] or root ‖ tokens: u32 little-endian ‖ multimodal: each run that
                 overlaps the block)                                  every part tagged, see ``identity.tagged``
    key[i]     = first 16 bytes of digest[i]

``docs/reference/hashing.md`` describes the scheme for other implementations, with golden vectors.
Invariants: only whole blocks are named; two sequences share a digest exactly when identity, scope, all tokens up to the
end of the block and the multimodal content in it and before it are equal. Token values at placeholders count too:
an engine that writes real text tokens inside a run would otherwise be given bytes of another text.
Threading: pure functions.
"""

import hashlib
import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import RequestError
from blockyard.core.identity import MultimodalRun, SequenceScope, tagged
from blockyard.core.vocabulary import DIGEST_BYTES, IdentityDigest

TOKEN_BYTES: Final = 4
MAX_TOKEN: Final = 2**32 - 1
_BLOCK_MAGIC: Final = b"blockyard block 1\0"
_RUN_PLACE: Final = struct.Struct("<IQQI")
"""First slot in the block, offset in the run, tokens of the whole run, tokens of it in this block."""

Tokens = Sequence[int] | npt.NDArray[np.integer[Any]]


def token_bytes(tokens: Tokens) -> bytes:
    """Tokens as little-endian u32.

    Raises:
        RequestError: a token is not an integer from 0 to 2**32 - 1.
    """
    if isinstance(tokens, np.ndarray):
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise RequestError("tokens are one row of integers", dtype=str(tokens.dtype), dimensions=tokens.ndim)
        if tokens.size and (int(tokens.min()) < 0 or int(tokens.max()) > MAX_TOKEN):
            raise RequestError("a token is not an unsigned 32-bit integer")
        return tokens.astype("<u4", copy=False).tobytes()
    if isinstance(tokens, (bytes, bytearray)):
        # An array would take their bytes as they lie in memory, several to a token.
        raise RequestError("tokens are integers, not packed bytes")
    try:
        packed = array("I", tokens)
    except (OverflowError, TypeError) as error:
        raise RequestError("a token is not an unsigned 32-bit integer") from error
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def content_run(
    identity: IdentityDigest,
    scope: SequenceScope,
    tokens: Tokens,
    block_tokens: int,
    *,
    parent: ChainRun | None = None,
) -> ChainRun:
    """Name the whole blocks of a token sequence.

    Args:
        identity: digest of the model identity.
        scope: tenant, salt, LoRA and multimodal runs of the request; run positions count from the sequence's start.
        tokens: the sequence **from its first token on**, also with ``parent``; an incomplete last block is left out.
        block_tokens: tokens per block.
        parent: blocks named earlier under the same identity and scope, ending anywhere in the sequence.

    Returns:
        The blocks after ``parent`` (all, without it); only these are hashed.

    Raises:
        RequestError: a token or multimodal run is not possible, or the sequence ends before ``parent`` does.
    """
    if block_tokens < 1:
        raise RequestError("a block holds at least one token", block_tokens=block_tokens)
    start = 0 if parent is None else parent.first_position + len(parent)
    if start * block_tokens > len(tokens):
        raise RequestError("the sequence is shorter than its parent blocks", tokens=len(tokens), parent_blocks=start)
    if parent is not None and start and not len(parent):
        raise RequestError("an empty run does not say which digest it ends with", position=start)
    runs = _checked_runs(scope)
    stop = len(tokens) // block_tokens
    packed = memoryview(token_bytes(tokens[start * block_tokens : stop * block_tokens]))
    if parent is None or not start:
        return ChainRun(b"".join(_chain(scope.root(identity), packed, runs, 0, block_tokens)))
    last = len(parent) - 1
    return ChainRun(b"".join(_chain(parent.digest(last), packed, runs, start, block_tokens)), start, parent.key(last))


def _chain(
    head: bytes, packed: memoryview, runs: Sequence[MultimodalRun], position: int, block_tokens: int
) -> Iterator[bytes]:
    """Digests of consecutive blocks, the first at ``position``."""
    stride = block_tokens * TOKEN_BYTES
    # The tags are the same for every block: only their values change.
    before = _BLOCK_MAGIC + tagged("parent", bytes(DIGEST_BYTES))[:-DIGEST_BYTES]
    between = tagged("tokens", bytes(stride))[:-stride]
    digest = head
    for offset in range(0, len(packed), stride):
        state = hashlib.sha256(before)
        state.update(digest + between)
        state.update(packed[offset : offset + stride])
        if runs:
            state.update(_extras(runs, position * block_tokens, block_tokens))
        digest = state.digest()
        position += 1
        yield digest


def _extras(runs: Sequence[MultimodalRun], first_token: int, block_tokens: int) -> bytes:
    """Tagged multimodal content of the block that starts at ``first_token``; empty where no run overlaps it."""
    parts = []
    for run in runs:
        start = max(run.first_token, first_token)
        stop = min(run.first_token + run.tokens, first_token + block_tokens)
        if start < stop:
            place = _RUN_PLACE.pack(start - first_token, start - run.first_token, run.tokens, stop - start)
            parts.append(tagged("multimodal", place + run.content_digest))
    return b"".join(parts)


def _checked_runs(scope: SequenceScope) -> list[MultimodalRun]:
    """Runs in order of position.

    Raises:
        RequestError: a run is empty or too long, starts before the sequence, has no digest, or overlaps another.
    """
    runs = sorted(scope.multimodal, key=lambda run: run.first_token)
    end = 0
    for run in runs:
        if not 1 <= run.tokens <= MAX_TOKEN or run.first_token < 0 or not run.content_digest:
            raise RequestError("a multimodal run is empty, too long or has no digest", first_token=run.first_token)
        if run.first_token < end:
            raise RequestError("multimodal runs overlap", first_token=run.first_token)
        end = run.first_token + run.tokens
    return runs
