"""Recorded loads: the block keys that each request asked for, in the order of arrival.

A number of a trace names a block and everything before it, so equal numbers are equal blocks; its key is a digest of
the number. Only whole blocks count: the last, partly filled one of a prompt is in no cache. Requests without a whole
block are left out.
Threading: values only.
"""

import hashlib
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, final

import msgspec

from blockyard.core.vocabulary import KEY_BYTES, ContentKey

BLOCK_TOKENS: Final = 512
TRACES: Final = ("mooncake_conversation", "mooncake_synthetic", "agentic_coding_a")
"""Names of the traces in ``bench/traces``."""
_FOLDER: Final = Path(__file__).parents[1] / "traces"
_NUMBER_BYTES: Final = 8


@final
@dataclass(frozen=True, slots=True)
class Trace:
    """Requests as lists of keys, head first."""

    name: str
    requests: tuple[list[ContentKey], ...]
    distinct: int
    """Different blocks."""

    @property
    def references(self) -> int:
        """Blocks asked for, with repetitions."""
        return sum(map(len, self.requests))

    def capacity(self, share: float) -> int:
        """Rows of a cache for this share of the different blocks; at least one."""
        return max(1, int(share * self.distinct))

    def head(self, requests: int) -> "Trace":
        """The first requests as a trace of their own."""
        return _trace(f"{self.name}[:{requests}]", self.requests[:requests])


class _Line(msgspec.Struct):
    input_length: int
    hash_ids: list[int]


@cache
def load(name: str) -> Trace:
    """Read one of ``TRACES``."""
    decoder = msgspec.json.Decoder(_Line)
    keys: dict[int, ContentKey] = {}
    requests: list[list[ContentKey]] = []
    with lzma.open(_FOLDER / f"{name}.jsonl.xz", "rb") as lines:
        for line in map(decoder.decode, lines):
            whole = line.hash_ids[: line.input_length // BLOCK_TOKENS]
            for number in whole:
                if number not in keys:
                    keys[number] = _key(number)
            if whole:
                requests.append([keys[number] for number in whole])
    return _trace(name, tuple(requests))


def _trace(name: str, requests: tuple[list[ContentKey], ...]) -> Trace:
    return Trace(name, requests, len({key for request in requests for key in request}))


def _key(number: int) -> ContentKey:
    return ContentKey(hashlib.sha256(number.to_bytes(_NUMBER_BYTES, "little")).digest()[:KEY_BYTES])
