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
Threading: a hasher belongs to one thread at a time; the functions are pure.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import RequestError
from blockyard.core.identity import MultimodalRun, SequenceScope, tagged
from blockyard.core.tokens import MAX_TOKEN, TOKEN_BYTES, Tokens, block_bytes, packed_tokens
from blockyard.core.vocabulary import DIGEST_BYTES, ROOT_KEY, ContentKey, IdentityDigest, key_of
from blockyard.core.whole_numbers import require_bytes, require_whole

_BLOCK_MAGIC: Final = b"blockyard block 1\0"
_RUN_PLACE: Final = struct.Struct("<IQQI")
"""First slot in the block, offset in the run, tokens of the whole run, tokens of it in this block."""


def content_run(identity: IdentityDigest, scope: SequenceScope, tokens: Tokens, block_tokens: int) -> ChainRun:
    """Name the whole blocks of a token sequence that is there in full; an incomplete last block is left out.

    Raises:
        RequestError: as ``ChainHasher`` and its ``append``.
    """
    return ChainHasher(identity, scope, block_tokens).append(tokens)


@final
class ChainHasher:
    """Names the blocks of one sequence while it grows: tokens come in pieces, blocks that they complete go out.

    Every token is hashed once, whatever the pieces are. A call that is refused changes nothing.
    """

    __slots__ = ("_block_tokens", "_blocks", "_digest", "_parent", "_rest", "_runs", "_start", "_stride", "_tag")

    def __init__(
        self, identity: IdentityDigest, scope: SequenceScope, block_tokens: int, *, named: ChainRun | None = None
    ) -> None:
        """Begin a sequence, or go on behind blocks of it that have names.

        Args:
            identity: digest of the model identity.
            scope: tenant, salt, LoRA and multimodal runs of the request; runs count from the sequence's start.
            block_tokens: tokens per block.
            named: blocks named earlier under the same identity, scope and block size; the first token that is
                appended follows the last of them.

        Raises:
            RequestError: a value is out of range, a multimodal run is not possible, or ``named`` is empty and does
                not stand at the start, so it does not say which digest comes before.
        """
        self._stride = block_bytes(block_tokens)
        self._block_tokens = block_tokens
        self._runs = _checked_runs(scope.multimodal)
        self._blocks = 0
        self._parent: ContentKey = ROOT_KEY
        self._digest: bytes = scope.root(identity)
        if named is not None and named.first_position and not len(named):
            raise RequestError("an empty run does not say which digest it ends with", position=named.first_position)
        if named:
            self._blocks = named.first_position + len(named)
            self._digest = named.digest(len(named) - 1)
            self._parent = key_of(self._digest)
        self._rest = b""
        # All that blocks have in common: their common start as a state to copy, and the tag between their values.
        self._start = hashlib.sha256(_BLOCK_MAGIC + tagged("parent", bytes(DIGEST_BYTES))[:-DIGEST_BYTES])
        self._tag = tagged("tokens", bytes(self._stride))[: -self._stride]

    @property
    def blocks(self) -> int:
        """Blocks of the sequence that have names."""
        return self._blocks

    @property
    def tokens(self) -> int:
        """Tokens of the sequence so far, those behind its last whole block included."""
        return self._blocks * self._block_tokens + len(self._rest) // TOKEN_BYTES

    def append(self, tokens: Tokens, multimodal: Sequence[MultimodalRun] = ()) -> ChainRun:
        """Add tokens at the end.

        Args:
            tokens: those that follow the ones given so far, and only those.
            multimodal: runs that the scope did not have; they count from the sequence's start.

        Returns:
            The blocks that are complete now and were not before; maybe none.

        Raises:
            RequestError: a token or a run is not possible, a run overlaps another or a block that has its name, or
                the chain gets longer than positions go.
        """
        runs = _checked_runs((*self._runs, *multimodal)) if multimodal else self._runs
        named = self._blocks * self._block_tokens
        for run in multimodal:
            if run.first_token < named:
                raise RequestError("a block under the run has its name", first_token=run.first_token, named=named)
        packed = packed_tokens(tokens)
        if self._rest:
            packed = memoryview(self._rest + packed)
        whole = len(packed) - len(packed) % self._stride
        digests = self._chain(packed[:whole], runs)
        run_of_blocks = ChainRun(b"".join(digests), self._blocks, self._parent)
        self._runs, self._rest = runs, bytes(packed[whole:])
        if digests:
            self._blocks += len(digests)
            self._digest = digests[-1]
            self._parent = key_of(self._digest)
        return run_of_blocks

    def _chain(self, packed: memoryview, runs: Sequence[MultimodalRun]) -> list[bytes]:
        """Digests of the next blocks."""
        # One tuple per block, made and dropped in turn, and one state to copy: for blocks of 16 tokens, what surrounds
        # SHA-256 takes half as long as with slices and a new state.
        contents: Iterable[tuple[bytes]] = struct.iter_unpack(f"{self._stride}s", packed)
        if runs:
            contents = self._with_runs(contents, len(packed) // self._stride, runs)
        begin, tag, digest = self._start.copy, self._tag, self._digest
        digests = []
        for (content,) in contents:
            state = begin()
            state.update(digest + tag)
            state.update(content)
            digest = state.digest()
            digests.append(digest)
        return digests

    def _with_runs(
        self, contents: Iterable[tuple[bytes]], blocks: int, runs: Sequence[MultimodalRun]
    ) -> Iterator[tuple[bytes]]:
        """Tokens of each block and behind them its tagged multimodal content."""
        size, offset = self._block_tokens, self._blocks * self._block_tokens
        extras: dict[int, bytes] = {}
        for run in runs:
            start, stop = run.first_token - offset, run.first_token + run.tokens - offset
            for index in range(max(start // size, 0), min((stop - 1) // size + 1, blocks)):
                first, last = max(start, index * size), min(stop, (index + 1) * size)
                place = _RUN_PLACE.pack(first - index * size, first - start, run.tokens, last - first)
                extras[index] = extras.get(index, b"") + tagged("multimodal", place + run.content_digest)
        return ((content + extras.get(index, b""),) for index, (content,) in enumerate(contents))


def _checked_runs(multimodal: Sequence[MultimodalRun]) -> tuple[MultimodalRun, ...]:
    """Runs in order of position.

    Raises:
        RequestError: a run is empty or too long, starts before the sequence, has no digest, or overlaps another.
    """
    for run in multimodal:
        require_whole("first token of a medium", run.first_token)
        require_whole("tokens of a medium", run.tokens, 1, MAX_TOKEN)
        require_bytes("content digest of a medium", run.content_digest)
    runs = tuple(sorted(multimodal, key=lambda run: run.first_token))
    end = 0
    for run in runs:
        if not run.content_digest:
            raise RequestError("a multimodal run has no digest", first_token=run.first_token)
        if run.first_token < end:
            raise RequestError("multimodal runs overlap", first_token=run.first_token)
        end = run.first_token + run.tokens
    return runs
