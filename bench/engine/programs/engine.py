"""A real vLLM engine: makes a random model, serves prompts one by one or all at once, and tells how long each took.

Threading: one thread, that of the engine; it steps only while it serves or idles.
"""

import time
from pathlib import Path
from typing import Any

from bench.orders import serve

BLOCK_TOKENS = 32
"""Tokens of an engine block: what the CPU attention kernel takes."""


class Engine:
    """One engine, made by the first order."""

    def make_model(self, folder: str, shape: dict[str, Any]) -> None:
        """Write a Llama of this shape with random weights."""
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        config = LlamaConfig(**shape, dtype="float32", bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
        LlamaForCausalLM(config).eval().save_pretrained(folder)

    def start(self, folder: str, options: dict[str, Any], connector: dict[str, Any] | None) -> dict[str, Any]:
        """Make the engine; ``connector`` holds the fields of its transfer config."""
        import vllm
        from vllm.config import KVTransferConfig

        transfer = {} if connector is None else {"kv_transfer_config": KVTransferConfig(**connector)}
        self.sampling = vllm.SamplingParams
        self.llm = vllm.LLM(
            model=folder,
            skip_tokenizer_init=True,
            dtype="float32",
            enforce_eager=True,
            enable_prefix_caching=True,
            block_size=BLOCK_TOKENS,
            seed=0,
            **options,
            **transfer,
        )
        return {
            "version": vllm.__version__,
            "weights": sum(f.stat().st_size for f in Path(folder).iterdir()),
        }

    def one_by_one(self, prompts: list[list[int]], pause_seconds: float) -> dict[str, Any]:
        """First tokens of prompts that arrive one by one: seconds to it, cached tokens, the token.

        Between two requests the engine goes on for a while, as a server does: ends of stores arrive in its steps.
        """
        seconds, cached, tokens = [], [], []
        for prompt in prompts:
            start = time.perf_counter()
            (output,) = self.generate([prompt], 1)
            seconds.append(time.perf_counter() - start)
            cached.append(output.num_cached_tokens)
            tokens.append(output.outputs[0].token_ids[0])
            self.idle(pause_seconds)
        return {"seconds": seconds, "cached": cached, "tokens": tokens}

    def all_at_once(self, prompts: list[list[int]], tokens: int) -> dict[str, Any]:
        """Seconds for all prompts together, each continued by ``tokens`` tokens."""
        start = time.perf_counter()
        outputs = self.generate(prompts, tokens)
        seconds = time.perf_counter() - start
        self.idle(0.2)
        return {"seconds": seconds, "cached": [output.num_cached_tokens for output in outputs]}

    def generate(self, prompts: list[list[int]], tokens: int) -> Any:
        """Continue prompts greedily."""
        sampling = self.sampling(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        return self.llm.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)

    def idle(self, seconds: float) -> None:
        """Step without requests for a while."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.llm.llm_engine.step()
            time.sleep(0.005)


if __name__ == "__main__":
    serve(Engine())
