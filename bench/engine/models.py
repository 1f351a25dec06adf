"""The models of the engine benchmarks: Llamas with random weights, three sizes.

``prefill_ms`` is what computing the mean prompt of the trace (1,500 tokens) took when the sizes were chosen, on one
core of a Xeon with AVX-512: it says what a hit saves. KV bytes follow from the shape, in float32.
Threading: frozen values.
"""

from dataclasses import dataclass
from typing import Any, Final, final

VOCABULARY: Final = 2_048
BLOCK_TOKENS: Final = 64
"""Tokens of a block, of the trace as of the node; a block of the trace stands for 512 tokens of a model that would take
minutes here."""
_FLOAT_BYTES: Final = 4


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BenchModel:
    """One size."""

    name: str
    hidden: int
    layers: int
    heads: int
    prefill_ms: int

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.hidden * self.layers * _FLOAT_BYTES

    @property
    def block_bytes(self) -> int:
        """Payload of one block of the node."""
        return self.kv_bytes_per_token * BLOCK_TOKENS

    @property
    def facts(self) -> str:
        """What makes a hit worth its load, in words."""
        return f"{self.prefill_ms} ms to compute and {self.kv_bytes_per_token >> 10} KiB of KV per token to load"

    def shape(self) -> dict[str, Any]:
        """Fields of a Llama's configuration."""
        return {
            "vocab_size": VOCABULARY,
            "hidden_size": self.hidden,
            "intermediate_size": 3 * self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "head_dim": self.hidden // self.heads,
            "max_position_embeddings": 4_096,
        }


SMALL: Final = BenchModel(name="small", hidden=128, layers=4, heads=4, prefill_ms=90)
MEDIUM: Final = BenchModel(name="medium", hidden=256, layers=6, heads=4, prefill_ms=300)
LARGE: Final = BenchModel(name="large", hidden=512, layers=8, heads=8, prefill_ms=1_100)
MODELS: Final = (SMALL, MEDIUM, LARGE)
