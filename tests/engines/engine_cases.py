"""Sizes of the engines and nodes of these tests, and prompts for them.

A block of Blockyard has 64 tokens; the engine's own have 32.
"""

from dataclasses import dataclass
from typing import Any, Final

BLOCK_TOKENS: Final = 64
OUTPUT_TOKENS: Final = 24
_WORDS: Final = 500


@dataclass(frozen=True, slots=True)
class Model:
    """A tiny model and what its KV takes."""

    kind: str
    engine_block_tokens: int
    block_bytes: int
    """Payload of a row of the largest group."""
    groups: int = 1
    dtype: str = "float32"
    batches: bool = True
    """Whether the plain engine answers a prompt in a batch as it answers it alone."""
    step_tokens: int = 96
    """Tokens of a step of the engine."""

    @property
    def name(self) -> str:
        """For folders and identities."""
        return self.kind if self.dtype == "float32" else f"{self.kind}-{self.dtype}"

    @property
    def pages(self) -> int:
        """Engine blocks of a row."""
        return BLOCK_TOKENS // self.engine_block_tokens


# Per layer and engine block: K and V of 2 heads of 32 x 32 tokens; 4 layers, 2 engine blocks.
LLAMA: Final = Model("llama", 32, 4 * 2 * 2 * 2 * 32 * 32 * 4)
LLAMA_BF16: Final = Model("llama", 32, 4 * 2 * 2 * 2 * 32 * 32 * 2, dtype="bfloat16")
# Per layer and token: a latent of 512 + 64; 3 layers. On a CPU with AMX the engine serves it in half precision, and
# rounds otherwise in steps that are cut otherwise: with steps of a block they are the same after a prefix. Elsewhere it
# takes 16 tokens a block whatever it is told, and cannot go on after a prefix, but for the last token of a prompt.
MLA: Final = Model("mla", 32, 3 * 64 * (512 + 64) * 2, dtype="bfloat16", batches=False, step_tokens=BLOCK_TOKENS)
# Two layers per group.
GEMMA3: Final = Model("gemma3", 32, 2 * 2 * 2 * 2 * 32 * 32 * 4, groups=2)


def prompt(number: int, tokens: int = 200) -> list[int]:
    """Prompt of a number; two differ from their first token on."""
    return [3 + (number * 131 + index * (7 + number % 5) + index * index % 97) % _WORDS for index in range(tokens)]


def options(model: Model, folder: str, **more: Any) -> dict[str, Any]:
    """What ``LLM`` gets: few blocks, small steps (prefill is chunked), no tokenizer."""
    return {
        "model": f"{folder}/{model.kind}",
        "skip_tokenizer_init": True,
        "dtype": model.dtype,
        "enforce_eager": True,
        "enable_prefix_caching": True,
        "block_size": model.engine_block_tokens,
        "max_model_len": 1_024,
        "max_num_seqs": 4,
        "max_num_batched_tokens": model.step_tokens,
        "kv_cache_memory_bytes": 32 << 20,
        "seed": 0,
        "disable_log_stats": False,
        **more,
    }
