"""vLLM's block pool: chains of blocks go in batch by batch, and are found again.

The calls are those of its scheduler; the requests are real ones, whose block hashes come ready. As its engine does, the
program takes what it made at the start out of the garbage collector's sight.
Threading: one thread.
"""

import random
import time
from typing import Any

from bench.orders import serve
from bench.peers.chains import digests

BLOCK_TOKENS = 16
GROUP = 0


class VllmPool:
    """``BlockPool`` with one group."""

    def start(self, rows: int, batch: int, depth: int, seed: int = 0) -> None:
        """Make a pool of ``rows`` rows for chains of ``depth`` blocks, which come in batches of ``batch``."""
        from vllm.sampling_params import SamplingParams
        from vllm.utils.gc_utils import freeze_gc_heap
        from vllm.v1.core.block_pool import BlockPool
        from vllm.v1.request import Request

        self.request = Request
        self.sampling = SamplingParams(max_tokens=1)
        self.batch, self.depth, self.seed = batch, depth, seed
        # One block is its own and is never granted.
        self.pool = BlockPool(rows + 1, enable_caching=True, hash_block_size=BLOCK_TOKENS)
        self.random = random.Random(seed)
        self.requests: list[Any] = []
        self.rows: list[list[int]] = []
        freeze_gc_heap()

    def fill(self, chains: int) -> dict[str, float]:
        """Put in the next chains: seconds of each verb."""
        first = len(self.requests)
        requests = [self._request(chain) for chain in range(first, first + chains)]
        pool, batch, clock = self.pool, self.batch, time.perf_counter
        allocate = register = free = 0.0
        rows: list[list[int]] = []
        for request in requests:
            blocks: list[Any] = []
            for done in range(0, self.depth, batch):
                begin = clock()
                granted = pool.get_new_blocks(batch)
                allocated = clock()
                blocks += granted
                pool.cache_full_blocks(request, blocks, done, done + batch, BLOCK_TOKENS, GROUP)
                registered = clock()
                pool.free_blocks(reversed(granted))
                free += clock() - registered
                register += registered - allocated
                allocate += allocated - begin
            rows.append([block.block_id for block in blocks])
        self.requests += requests
        self.rows += rows
        for request, ids in zip(requests, rows, strict=True):
            self._check([pool.get_cached_block(name, [GROUP])[0] for name in request.block_hashes], ids)
        return {"allocate": allocate, "register": register, "free": free}

    def match(self, lookups: int) -> dict[str, Any]:
        """Find and pin whole chains drawn at random among those of the last ``fill``s; amount: lookups."""
        drawn = [self.random.randrange(len(self.requests)) for _ in range(lookups)]
        asked = [list(self.requests[chain].block_hashes) for chain in drawn]
        pool, groups, found = self.pool, [GROUP], []
        begin = time.perf_counter()
        for names in asked:
            blocks = []
            for name in names:
                cached = pool.get_cached_block(name, groups)
                if cached is None:
                    break
                blocks.append(cached[0])
            pool.touch(blocks)
            found.append(blocks)
        seconds = time.perf_counter() - begin
        for chain, blocks in zip(drawn, found, strict=True):
            self._check(blocks, self.rows[chain])
            pool.free_blocks(reversed(blocks))
        return {"amount": lookups, "seconds": seconds}

    def _request(self, chain: int) -> Any:
        names = digests(chain, self.depth, seed=self.seed)
        return self.request(
            request_id=str(chain),
            prompt_token_ids=[0] * (self.depth * BLOCK_TOKENS),
            sampling_params=self.sampling,
            pooling_params=None,
            block_hasher=lambda request: names,
        )

    def _check(self, blocks: list[Any], ids: list[int]) -> None:
        if [block.block_id for block in blocks] != ids:
            raise ValueError("a chain is found in other rows than it was put")


if __name__ == "__main__":
    serve(VllmPool())
