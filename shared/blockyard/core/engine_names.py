"""Names of rows whose blocks the engine names: content digests from the engine's own chain of block hashes.

The engine hashes every block together with all before it, so the hash of the last engine block of a row names the row
and its prefix. It says nothing of model, weights or layout: the identity does. ::

    digest[row] = SHA-256(magic ‖ tagged identity digest ‖ tagged hash of the last engine block of the row)

So who knows the hashes of an engine, from its events or from tokens (``vllm_chain``, ``sglang_chain``), knows the keys
of its rows in ours. Invariants: pure functions of identity and hashes; two engines share a row exactly when both are
equal. Which chain of hashes it is, algorithm and engine version, is in ``hash_version`` of the identity.
Threading: pure; a microsecond per row, meant for a thread that nothing waits for.
"""

import hashlib
from collections.abc import Sequence
from typing import Final, final

from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import RequestError
from blockyard.core.identity import tagged
from blockyard.core.vocabulary import DIGEST_BYTES, ROOT_KEY, ChainDigest, IdentityDigest, key_of
from blockyard.core.whole_numbers import require_bytes, require_whole

_MAGIC: Final = b"blockyard engine block 1\0"


@final
class EngineNames:
    """Digests under one identity."""

    def __init__(self, identity: IdentityDigest) -> None:
        """Prepare what all names have in common.

        Raises:
            RequestError: the identity is no digest.
        """
        require_bytes("identity digest", identity, DIGEST_BYTES)
        self._state = hashlib.sha256(_MAGIC + tagged("identity", identity))

    def digest(self, block_hash: bytes) -> ChainDigest:
        """Digest of the row whose last engine block has this hash.

        Raises:
            RequestError: the hash is no byte string.
        """
        require_bytes("hash of a block", block_hash)
        state = self._state.copy()
        state.update(tagged("hash", block_hash))
        return ChainDigest(state.digest())

    def run(self, row_hashes: Sequence[bytes], first_row: int = 0) -> ChainRun:
        """Rows of one chain.

        Args:
            row_hashes: hashes of the last engine blocks of the rows; where the run does not begin at row 0, that of
                the row before comes first.
            first_row: position of the first row in its chain.

        Raises:
            RequestError: the hash of the row before is missing, so nobody could say where the run begins.
        """
        if first_row and not row_hashes:
            raise RequestError("the row before the run has no hash", position=first_row)
        digests = [self.digest(block_hash) for block_hash in row_hashes]
        if first_row == 0:
            return ChainRun(b"".join(digests), 0, ROOT_KEY)
        return ChainRun(b"".join(digests[1:]), first_row, key_of(digests[0]))


def row_hashes(block_hashes: Sequence[bytes], hashes_per_row: int, first_row: int, stop_row: int) -> list[bytes]:
    """Hashes that name these rows, preceded by that of the row before where there is one (see ``EngineNames.run``).

    Raises:
        RequestError: a number is negative, or a row has no hash.
    """
    require_whole("hashes of a row", hashes_per_row, 1)
    require_whole("first row", first_row)
    require_whole("row after the last", stop_row)
    start = max(0, first_row - 1)
    return list(block_hashes[(start + 1) * hashes_per_row - 1 : stop_row * hashes_per_row : hashes_per_row])
