"""Dynamo's hashes of the blocks of a prompt, from its runtime.

Threading: one thread.
"""

import time
from typing import Any

from bench.orders import serve
from bench.peers.chains import tokens


class DynamoHashes:
    """``compute_block_hash_for_seq`` over one prompt."""

    def start(self, prompt_tokens: int, block_tokens: int, seed: int = 0) -> None:
        """Import the runtime and draw the prompt."""
        from dynamo.llm import compute_block_hash_for_seq

        self.compute = compute_block_hash_for_seq
        self.prompt = tokens(prompt_tokens, seed=seed)
        self.block_tokens = block_tokens

    def hash(self, times: int = 1) -> dict[str, Any]:
        """Hash the prompt so often; amount: tokens, in the time that the process had."""
        begin = time.process_time()
        for _ in range(times):
            self.compute(self.prompt, self.block_tokens)
        return {"amount": times * len(self.prompt), "seconds": time.process_time() - begin}

    def hashes(self) -> list[int]:
        """The hashes of the prompt's blocks, unsigned 64-bit, to be compared."""
        return list(self.compute(self.prompt, self.block_tokens))


if __name__ == "__main__":
    serve(DynamoHashes())
