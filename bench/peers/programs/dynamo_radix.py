"""Dynamo's radix tree of block hashes: events of many workers in, longest prefixes out.

Chain ``c`` is held by ``holders`` workers, ``c % workers`` and those after it. The tree stands for the index of a
router, so events are encoded before the clock starts: that is the work of those who send them.
Threading: one thread of ours, and that of the tree, on one processor. Each call is handed to the thread of the tree and
waited for; between two processors that takes several times as long, and where the thread runs would be chance.
"""

import json
import os
import random
import time
from typing import Any

from bench.orders import serve
from bench.peers.chains import block_hashes


class DynamoRadix:
    """``RadixTree`` filled with chains of one depth."""

    def start(self, chains: int, depth: int, workers: int = 1, holders: int = 1, seed: int = 0) -> None:
        """Import the runtime, draw the chains, and fill a tree with them."""
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        from dynamo.llm import RadixTree

        self.make = RadixTree
        self.depth = depth
        self.workers = workers
        self.holders = holders
        self.chains = [block_hashes(chain, depth, seed=seed) for chain in range(chains)]
        self.random = random.Random(seed)
        self.tree = self._filled(self._events(range(chains)), self.chains[-1])

    def lookup(self, lookups: int, length: int | None = None) -> dict[str, Any]:
        """Longest prefixes of chains drawn at random, of their first ``length`` blocks; amount: lookups."""
        asked = [chain[:length] for chain in self.random.choices(self.chains, k=lookups)]
        find = self.tree.find_matches
        begin = time.perf_counter()
        for hashes in asked:
            scores = find(hashes).scores
        seconds = time.perf_counter() - begin
        if list(scores.values()) != [len(asked[-1])] * self.holders:
            raise ValueError(f"a chain of {len(asked[-1])} blocks has the scores {dict(scores)}")
        return {"amount": lookups, "seconds": seconds}

    def miss(self, lookups: int) -> dict[str, Any]:
        """Prefixes that nobody has; amount: lookups."""
        asked = [[self.random.getrandbits(63) for _ in range(self.depth)] for _ in range(lookups)]
        find = self.tree.find_matches
        begin = time.perf_counter()
        for hashes in asked:
            scores = find(hashes).scores
        seconds = time.perf_counter() - begin
        if scores:
            raise ValueError(f"a chain of nobody has the scores {dict(scores)}")
        return {"amount": lookups, "seconds": seconds}

    def ingest(self, chains: int) -> dict[str, Any]:
        """A new tree out of events, one per worker and chain; amount: blocks."""
        events = self._events(range(chains))
        begin = time.perf_counter()
        self._filled(events, self.chains[chains - 1])
        return {"amount": len(events) * self.depth, "seconds": time.perf_counter() - begin}

    def matches(self, chain: int, length: int | None = None) -> dict[str, int]:
        """Blocks of this chain that each worker has, by its number; to be compared."""
        scores = self.tree.find_matches(self.chains[chain][:length]).scores
        return {str(worker): blocks for (worker, _), blocks in scores.items()}

    def _filled(self, events: list[tuple[int, bytes]], last: list[int]) -> Any:
        tree = self.make()
        apply = tree.apply_event
        for worker, event in events:
            apply(worker, event)
        # Events are taken up by a thread of the tree; a question stands behind all of them.
        if list(tree.find_matches(last).scores.values()) != [self.depth] * self.holders:
            raise ValueError("the tree has not taken up all events")
        return tree

    def _events(self, chains: range) -> list[tuple[int, bytes]]:
        events: list[tuple[int, bytes]] = []
        for chain in chains:
            blocks = [{"block_hash": value, "tokens_hash": value} for value in self.chains[chain]]
            for holder in range(self.holders):
                stored = {"stored": {"parent_hash": None, "blocks": blocks}}
                event = {"event_id": len(events), "dp_rank": 0, "data": stored}
                events.append(((chain + holder) % self.workers, json.dumps(event).encode()))
        return events


if __name__ == "__main__":
    serve(DynamoRadix())
