"""LRU of libCacheSim over requests for chains of numbers, all of one size.

It knows no requests, so each chain is asked for twice: from its head, which counts and brings in what is missing, and
from its tail, so that the head is used last. That is what finding, pinning and releasing make of it in a block pool.
Threading: one thread.
"""

import time
from typing import Any

from bench.orders import serve


class LibcachesimLru:
    """``LRU``, asked for one number at a time, as its Python interface has it."""

    def start(self, requests: list[list[int]]) -> None:
        """Import the package and make its form of each number."""
        import libcachesim

        self.make = libcachesim.LRU
        self.chains = [[libcachesim.Request(obj_id=number, obj_size=1) for number in chain] for chain in requests]
        self.hits = 0

    def replay(self, capacity: int) -> dict[str, Any]:
        """Ask for all chains in turn in an empty cache; amount: numbers."""
        get = self.make(cache_size=capacity).get
        hits = 0
        begin = time.perf_counter()
        for chain in self.chains:
            hits += sum(map(get, chain))
            for number in reversed(chain):
                get(number)
        seconds = time.perf_counter() - begin
        self.hits = hits
        return {"amount": sum(map(len, self.chains)), "seconds": seconds}

    def last_hits(self) -> int:
        """Numbers found in the last replay."""
        return self.hits


if __name__ == "__main__":
    serve(LibcachesimLru())
