"""The shipped slice of a real trace: requests of a chat service as lists of 512-token blocks.

One JSON line per request: ``timestamp`` (ms from the start) and ``hash_ids`` (one integer per full block of the
prompt; an id names the block and its whole prefix). Origin and licence: ``TRACE.md`` beside the data.
Threading: values only.
"""

import gzip
from dataclasses import dataclass
from importlib import resources

import msgspec
import numpy as np
import numpy.typing as npt

TRACE_BLOCK_TOKENS = 512
_FILE = "conversation_slice.jsonl.gz"


class _Line(msgspec.Struct, frozen=True):
    timestamp: int
    hash_ids: list[int]


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request: arrival in seconds from the start, and its block ids."""

    index: int
    arrival_seconds: float
    blocks: tuple[int, ...]

    def tokens(self) -> npt.NDArray[np.uint32]:
        """Token ids of the prompt: block id b stands for the tokens b*512 ... b*512+511."""
        starts = np.asarray(self.blocks, np.uint32) * np.uint32(TRACE_BLOCK_TOKENS)
        tokens = starts[:, None] + np.arange(TRACE_BLOCK_TOKENS, dtype=np.uint32)[None, :]
        return tokens.reshape(-1)


def load_trace() -> list[TraceRequest]:
    """All requests of the slice in order of arrival."""
    decoder = msgspec.json.Decoder(_Line)
    data = gzip.decompress(resources.files(__package__).joinpath(_FILE).read_bytes())
    lines = [decoder.decode(line) for line in data.splitlines()]
    return [TraceRequest(index, line.timestamp / 1_000, tuple(line.hash_ids)) for index, line in enumerate(lines)]
