"""The benchmark cases by name; a new one is a module with ``run`` and one line here."""

from collections.abc import Callable, Iterator
from typing import Final

from bench.cases import (
    channel,
    eviction,
    eviction_speed,
    g3,
    g4,
    hashing,
    lru_replay,
    memory,
    pool_ops,
    prefix_index,
    scheduler_half,
    vllm_overhead,
    vllm_ttft,
    write_policy,
)
from bench.measure import Measure

CASES: Final[dict[str, Callable[[str], Iterator[Measure]]]] = {
    "channel": channel.run,
    "eviction": eviction.run,
    "eviction_quick": eviction.run_quick,
    "eviction_speed": eviction_speed.run,
    "g3": g3.run,
    "g4": g4.run,
    "hashing": hashing.run,
    "lru_replay": lru_replay.run,
    "memory": memory.run,
    "pool_ops": pool_ops.run,
    "prefix_index": prefix_index.run,
    "scheduler_half": scheduler_half.run,
    "vllm_overhead": vllm_overhead.run,
    "vllm_ttft": vllm_ttft.run,
    "write_policy": write_policy.run,
}
