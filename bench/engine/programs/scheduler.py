"""vLLM's real scheduler with the connector, no model: how long the connector holds the scheduler's thread.

The rank half runs too, on memory of its own, so that rows are stored as in a real engine. Only the forward pass is
missing: in its place the thread sleeps, as it would wait for a device, and the client's thread has the interpreter for
itself. Where both want it at once, the waiting counts; processor time is told beside it.
Threading: one thread of ours, and those of the connector.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.engine.cores import scheduler_core
from bench.orders import serve

BLOCK_TOKENS = 16
KV_HEADS, HEAD_SIZE = 1, 32
BLOCKS = 24_576
STEP_TOKENS = 8_192
MOST_TOKENS = 140_000
DECODED_TOKENS = 24
_ADMISSION = ("on_new_request", "get_num_new_matched_tokens", "update_state_after_alloc")
_END = ("request_finished", "request_finished_all_groups")
_STEP = (
    "build_connector_meta",
    "update_connector_output",
    "take_events",
    "has_pending_push_work",
    "get_kv_connector_stats",
)
_EMPTY_STEPS = 2_000
_FORWARD_SECONDS = 0.005
"""A step of a fast model; slower ones leave the client's thread more time."""


@dataclass
class Spent:
    """Microseconds in the connector."""

    wall: float = 0.0
    cpu: float = 0.0

    def add(self, other: "Spent", share: float = 1.0) -> None:
        """Count a part of another one in."""
        self.wall += other.wall * share
        self.cpu += other.cpu * share


class TimedCalls:
    """Adds up what the scheduler's calls into the connector take, from one reading to the next."""

    def __init__(self, connector: Any) -> None:
        """Time the calls of this connector."""
        self._spent = Spent()
        self._admitting = False
        for name in (*_ADMISSION, *_END, *_STEP):
            setattr(connector, name, self._timed(name, getattr(connector, name)))

    def take(self) -> tuple[Spent, bool]:
        """What was spent since the last reading, and whether a request was admitted or ended."""
        taken = self._spent, self._admitting
        self._spent, self._admitting = Spent(), False
        return taken

    def _timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            # The clock of the processor is a system call: outside of what the other one measures.
            cpu, wall = time.thread_time(), time.perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                self._spent.wall += (time.perf_counter() - wall) * 1e6
                self._spent.cpu += (time.thread_time() - cpu) * 1e6
                self._admitting |= name not in _STEP

        return timed


def _keep_a_core() -> None:
    """This thread on the core that nobody else has, all others of the process on the rest."""
    own, others = scheduler_core()
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), others)
    os.sched_setaffinity(0, own)


class SchedulerSteps:
    """One scheduler, made by the first order."""

    def start(self, folder: str, connector: dict[str, Any]) -> dict[str, Any]:
        """Make the scheduler, its connector, and a rank half with memory."""
        import torch
        import vllm
        from transformers import LlamaConfig
        from vllm.config import CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        Path(folder).mkdir()
        LlamaConfig(
            hidden_size=HEAD_SIZE,
            num_attention_heads=1,
            num_key_value_heads=KV_HEADS,
            head_dim=HEAD_SIZE,
            num_hidden_layers=1,
            intermediate_size=HEAD_SIZE,
            vocab_size=2_048,
            max_position_embeddings=MOST_TOKENS,
            architectures=["LlamaForCausalLM"],
        ).save_pretrained(folder)
        cache = CacheConfig(block_size=BLOCK_TOKENS, enable_prefix_caching=True)
        config = VllmConfig(
            model_config=ModelConfig(model=folder, dtype="float32", seed=0, skip_tokenizer_init=True),
            scheduler_config=SchedulerConfig(
                max_num_seqs=16,
                max_num_batched_tokens=STEP_TOKENS,
                max_model_len=MOST_TOKENS,
                enable_chunked_prefill=True,
                is_encoder_decoder=False,
            ),
            cache_config=cache,
            device_config=DeviceConfig("cpu"),
            kv_transfer_config=KVTransferConfig(**connector),
        )
        # The platform sets what suits its kernels; there are none here.
        cache.block_size, cache.num_gpu_blocks, cache.kv_cache_layout = BLOCK_TOKENS, BLOCKS, "LBHNC"
        spec = FullAttentionSpec(
            block_size=BLOCK_TOKENS, num_kv_heads=KV_HEADS, head_size=HEAD_SIZE, dtype=torch.float32
        )
        kv_cache = KVCacheConfig(
            num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        )
        hash_of = get_hash_fn_by_name(cache.prefix_caching_hash_algo)
        init_none_hash(hash_of)
        self.hasher = get_request_block_hasher(BLOCK_TOKENS, hash_of)
        self.scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=kv_cache,
            log_stats=True,
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK_TOKENS,
        )
        self.timed = TimedCalls(self.scheduler.connector)
        self.rank = self._rank_half(config, kv_cache, spec)
        self.requests = 0
        _keep_a_core()
        return {"version": vllm.__version__}

    def run(self, prompt_tokens: int, at_once: int, waves: int) -> dict[str, Any]:
        """Serve prompts that share nothing, some at once; microseconds in the connector.

        Returns:
            ``steps``: of each step in which no request came or went. ``requests``: per request its arrival, and its
            share of the steps in which requests came or went. Each with ``wall`` and ``cpu``.
        """
        steps: list[Spent] = []
        requests: list[Spent] = []
        for _ in range(waves):
            wave: list[Spent] = []
            for _ in range(at_once):
                self.requests += 1
                self.scheduler.add_request(self._request(prompt_tokens))
                wave.append(self.timed.take()[0])
            empty = 0
            while self.scheduler.has_requests():
                worked = self._step()
                spent, admitting = self.timed.take()
                if admitting:
                    for request in wave:
                        request.add(spent, 1 / at_once)
                elif worked:
                    steps.append(spent)
                else:
                    empty += 1
                    if empty > _EMPTY_STEPS:
                        raise TimeoutError("requests wait and nothing is computed")
                    time.sleep(0.001)
            requests += wave
        kinds = {"steps": steps, "requests": requests}
        return {
            name: {"wall": [spent.wall for spent in taken], "cpu": [spent.cpu for spent in taken]}
            for name, taken in kinds.items()
        }

    def _rank_half(self, config: Any, kv_cache: Any, spec: Any) -> Any:
        """The connector of the one rank, with memory as the engine allocates it."""
        import torch
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

        rank = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER, kv_cache)
        with rank.get_mem_pool_context():
            memory = torch.zeros(BLOCKS * spec.page_size_bytes, dtype=torch.int8, device="cpu")
        shape = (BLOCKS, KV_HEADS, BLOCK_TOKENS, 2 * HEAD_SIZE)
        rank.register_kv_caches({"layer": memory.view(torch.float32).view(shape)})
        return rank

    def _request(self, prompt_tokens: int) -> Any:
        import numpy as np
        from vllm import SamplingParams
        from vllm.v1.request import Request

        sampling = SamplingParams(max_tokens=DECODED_TOKENS, temperature=0.0, ignore_eos=True, detokenize=False)
        sampling.update_from_generation_config({}, 2)
        tokens = np.random.default_rng(self.requests).integers(3, 2_048, prompt_tokens)
        return Request(
            request_id=f"request-{self.requests}",
            prompt_token_ids=tokens.tolist(),
            sampling_params=sampling,
            pooling_params=None,
            mm_features=None,
            block_hasher=self.hasher,
        )

    def _step(self) -> bool:
        """One step with the hooks of the rank; whether it computed anything."""
        from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

        scheduled = self.scheduler.schedule()
        rank, meta = self.rank, scheduled.kv_connector_metadata
        rank.handle_preemptions(meta)
        rank.bind_connector_metadata(meta)
        rank.start_load_kv(None)
        if scheduled.total_num_scheduled_tokens:
            time.sleep(_FORWARD_SECONDS)
        rank.wait_for_save()
        ends = rank.get_transfer_results(set())
        output = KVConnectorOutput(
            finished_sending=ends.finished_sending,
            finished_recving=ends.finished_recving,
            failed_recving=ends.failed_recving,
            invalid_block_ids=rank.get_block_ids_with_load_errors(),
            kv_connector_worker_meta=rank.build_connector_worker_meta(),
        )
        rank.clear_connector_metadata()
        ids = list(scheduled.num_scheduled_tokens)
        done = [self._is_computed(scheduled, request_id) for request_id in ids]
        self.scheduler.update_from_output(
            scheduled,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
                sampled_token_ids=[[5] if whole else [] for whole in done],
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=None,
                kv_connector_output=output,
            ),
        )
        return bool(ids)

    def _is_computed(self, scheduled: Any, request_id: str) -> bool:
        """Whether this step reaches the last token of a request, so that a new one is sampled."""
        request = self.scheduler.requests[request_id]
        # The scheduler counts the tokens of a step as computed as soon as it has scheduled them.
        return bool(request.num_computed_tokens >= request.num_tokens)


if __name__ == "__main__":
    serve(SchedulerSteps())
