"""Prompts out of a trace: each block of the trace becomes tokens that follow from its number.

A number names a block and everything before it, so two prompts share as many tokens as blocks from the start.
Threading: pure functions.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

TRACE: Final = Path(__file__).parents[1] / "traces" / "conversation_turns.jsonl"
_FIRST_TOKEN: Final = 3


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """One request of a trace."""

    blocks: tuple[int, ...]
    """Numbers of the whole blocks of its prompt."""
    seen_blocks: int
    """So many of them, from the start, were in an earlier request."""


def read_trace(path: Path = TRACE) -> list[TracedRequest]:
    """Requests in the order of their arrival."""
    requests: list[TracedRequest] = []
    seen: set[int] = set()
    for line in path.read_text().splitlines():
        blocks = tuple(json.loads(line)["blocks"])
        known = next((index for index, block in enumerate(blocks) if block not in seen), len(blocks))
        seen.update(blocks)
        requests.append(TracedRequest(blocks, known))
    return requests


def prompt_of(request: TracedRequest, *, block_tokens: int, vocabulary: int, salt: int) -> list[int]:
    """Its tokens, and one more than its blocks have, so that something is left to compute.

    Args:
        request: what was asked.
        block_tokens: tokens of one block of the trace.
        vocabulary: tokens there are.
        salt: prompts of different salts share nothing.
    """
    parts = [
        np.random.default_rng([salt, block]).integers(_FIRST_TOKEN, vocabulary, block_tokens)
        for block in request.blocks
    ]
    return [int(token) for part in parts for token in part] + [_FIRST_TOKEN]


def random_prompts(count: int, tokens: int, *, vocabulary: int, salt: int) -> list[list[int]]:
    """Prompts that share nothing."""
    drawn = np.random.default_rng(salt).integers(_FIRST_TOKEN, vocabulary, (count, tokens))
    return [[int(token) for token in prompt] for prompt in drawn]
