"""Page hashes of SGLang's hierarchical cache, bit for bit: keys of its storage and source of its event hashes.

::

    hash[-1]    nothing, or the seed of the request's namespace
    hash[i]     SHA-256(hash[i-1] ‖ tokens of page i as u32 little-endian)
                SHA-256(hash[i-1] ‖ FF ‖ the same as u64)          where one of them needs more than 32 bits

Placeholders of media have tokens of their own, far above any vocabulary, so media need nothing else.
Read in SGLang 0.5.23, and compared with its code: the seeds and the wide pages are of late 2026, older versions differ.
Not covered: pairs of tokens, which engines with an EAGLE draft hash, and events of requests with an extra key or LoRA.
Invariants: hashes are 32 bytes, written in hexadecimal by the engine; only whole pages have one. They do not cover the
model: see ``engine_names``.
Threading: pure functions.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from blockyard.core.errors import RequestError
from blockyard.core.identity import utf8
from blockyard.core.tokens import MAX_BLOCK_TOKENS, MAX_TOKEN, block_bytes
from blockyard.core.vocabulary import DIGEST_BYTES
from blockyard.core.whole_numbers import require_bytes, require_whole

_NAMESPACE_MAGIC: Final = b"sglang-cache-namespace-v1"
_EVENT_SALT_MAGIC: Final = b"sglang-cache-salt-v1\0"
_MEDIA_MAGIC: Final = b"sglang-mm-wide-pad-v1"
_WIDE: Final = b"\xff"
_FIRST_MEDIA_TOKEN: Final = 1_000_000
_MEDIA_TOKEN_BITS: Final = 62


def storage_seed(extra_key: str | None, cache_salt: str | None) -> bytes | None:
    """What stands before the first page of a request in storage; ``None``: nothing.

    The engine puts the LoRA's id behind the extra key. An empty extra key is not an absent one; an empty salt is.

    Raises:
        RequestError: a text that UTF-8 cannot express.
    """
    if extra_key is None and not cache_salt:
        return None
    state = hashlib.sha256(_NAMESPACE_MAGIC)
    for name, part in (("extra_key", extra_key), ("cache_salt", cache_salt or None)):
        text = b"" if part is None else utf8(part, name)
        state.update(b"\0" if part is None else b"\1" + len(text).to_bytes(8, "little") + text)
    return state.digest()


def event_seed(cache_salt: str | None) -> bytes | None:
    """What stands before the first page of a request in the chain that its events publish.

    Raises:
        RequestError: a text that UTF-8 cannot express.
    """
    return hashlib.sha256(_EVENT_SALT_MAGIC + utf8(cache_salt, "cache_salt")).digest() if cache_salt else None


def page_hashes(
    tokens: Sequence[int] | npt.NDArray[np.integer[Any]], page_tokens: int, parent: bytes | None = None
) -> list[bytes]:
    """Hash of every whole page.

    Args:
        tokens: of the sequence, or of some of its pages; media as ``media_tokens`` writes them.
        page_tokens: tokens of a page.
        parent: hash of the page before the first, or the seed of the request.

    Raises:
        RequestError: a token is not an integer from 0 to 2**63 - 1, or the parent is no hash.
    """
    if parent is not None:
        require_bytes("hash of a page", parent, DIGEST_BYTES)
    block_bytes(page_tokens)
    numbers = _unsigned(tokens)
    pages = numbers[: len(numbers) - len(numbers) % page_tokens].reshape(-1, page_tokens)
    wide: list[bool] = np.any(pages > MAX_TOKEN, axis=1).tolist()
    narrow = pages.astype("<u4")
    last, hashes = parent or b"", []
    for page, needs_more in enumerate(wide):
        content = _WIDE + pages[page].tobytes() if needs_more else narrow[page].tobytes()
        last = hashlib.sha256(last + content).digest()
        hashes.append(last)
    return hashes


def media_tokens(content: bytes, tokens: int) -> list[int]:
    """Tokens that the engine puts in place of a medium's placeholders.

    Args:
        content: its 32-byte digest, or its 64-bit hash as 8 big-endian bytes, whichever the engine has.
        tokens: how many placeholders.

    Raises:
        RequestError: a negative number of them, or more than any sequence has.
    """
    require_whole("tokens of a medium", tokens, 0, MAX_BLOCK_TOKENS)
    require_bytes("content of a medium", content)
    digest = hashlib.sha256(_MEDIA_MAGIC + content).digest()
    four = [
        _FIRST_MEDIA_TOKEN + int.from_bytes(digest[at : at + 8], "big") % (1 << _MEDIA_TOKEN_BITS)
        for at in range(0, DIGEST_BYTES, 8)
    ]
    return [four[index % 4] for index in range(tokens)]


def event_hash(page_hash: bytes) -> int:
    """Signed number by which the engine's KV events name a page: the first 8 bytes."""
    return int.from_bytes(page_hash[:8], "big", signed=True)


def _unsigned(tokens: Sequence[int] | npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.uint64]:
    if isinstance(tokens, (bytes, bytearray, memoryview, str)):
        raise RequestError("tokens are integers, not packed bytes", type=type(tokens).__name__)
    try:
        numbers = np.asarray(tokens)
        if len(numbers) == 0:
            numbers = numbers.astype(np.int64)
    except (OverflowError, TypeError, ValueError) as error:
        raise RequestError("a token is not an unsigned 63-bit integer", type=type(tokens).__name__) from error
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise RequestError("tokens are one row of integers", dtype=str(numbers.dtype), dimensions=numbers.ndim)
    if numbers.size and (int(numbers.min()) < 0 or int(numbers.max()) >= 1 << 63):
        raise RequestError("a token is not an unsigned 63-bit integer", dtype=str(numbers.dtype))
    return numbers.astype("<u8")
