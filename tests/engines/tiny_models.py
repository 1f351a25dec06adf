"""Tiny random models for the tests, made on the spot in the engine's environment, a folder each below the one named.

Weights are drawn wide (0.3), so that greedy output hangs on every token of the context: one wrong KV block and it
differs. Head sizes are what the CPU kernels take. No tokenizer: prompts and outputs are tokens. The end-of-text token
is a word like any other where the request says so. A tokenizer lies beside the first, with a token per byte.
Threading: one.
"""

import argparse
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    DeepseekV2Config,
    Gemma3TextConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

VOCABULARY: Final = 512
_COMMON: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY,
    "initializer_range": 0.3,
    "max_position_embeddings": 4_096,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}


def llama() -> PreTrainedConfig:
    """Grouped attention, one KV group."""
    return LlamaConfig(
        **_COMMON,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
    )


def mla() -> PreTrainedConfig:
    """Latent attention: every rank holds the same bytes."""
    return DeepseekV2Config(
        **_COMMON,
        hidden_size=128,
        intermediate_size=256,
        moe_intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=None,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        n_routed_experts=2,
        n_shared_experts=1,
        num_experts_per_tok=1,
        first_k_dense_replace=3,
    )


def gemma3() -> PreTrainedConfig:
    """Sliding windows and full attention in turn: several KV groups."""
    return Gemma3TextConfig(
        **_COMMON,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=64,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    )


KINDS: Final = {"llama": llama, "mla": mla, "gemma3": gemma3}


def write_tokenizer(folder: Path) -> None:
    """Bytes as tokens, behind the three special ones."""
    words = ["<unk>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE(vocab={word: number for number, word in enumerate(words)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)


def main() -> None:
    """Write config and weights of every kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for kind, config in KINDS.items():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config(), dtype=torch.float32).eval().save_pretrained(folder / kind)
    write_tokenizer(folder / "llama")


if __name__ == "__main__":
    main()
