"""A real vLLM scheduler with the real connector, without a model and without workers, and a node that tests script.

Threading: one; the scripted node answers when the test says so.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from tests.engines.contract.scripted_node import ScriptedNode
from vllm import SamplingParams
from vllm.config import CacheConfig, DeviceConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from blockyard.connectors.vllm.connector import BlockyardConnector
from blockyard.connectors.vllm.metadata import BlockyardMetadata

BLOCK = 16
"""Tokens of an engine block."""
ROW = 64
"""Tokens of a block of the node: four engine blocks."""
BLOCKS = 96
HASH = get_hash_fn_by_name("sha256_cbor")
init_none_hash(HASH)


NODE = ScriptedNode()
"""Of the engine that is being made."""


class ScriptedConnector(BlockyardConnector):
    """The connector with a scripted node in place of a client."""

    def _open_calls(self, described: Any, guards: Any) -> Any:
        NODE.guards = guards
        return NODE


class OtherConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]  # the engine ships no types here
    """Somebody else's connector, which brings one engine block of every prompt at once."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        return (BLOCK, False) if num_computed_tokens == 0 else (0, False)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        pass

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return BlockyardMetadata()

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        pass

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        pass

    def wait_for_save(self) -> None:
        pass


def model_folder(folder: Path) -> Path:
    """Just enough of a model for the configuration of an engine."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "vocab_size": 512,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "torch_dtype": "float32",
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@dataclass
class Step:
    """One step of the engine between its halves."""

    scheduled: Any
    plan: Any

    @property
    def tokens(self) -> dict[str, int]:
        """Scheduled tokens per request."""
        return dict(self.scheduled.num_scheduled_tokens)


class Engine:
    """A scheduler, and one rank half that only echoes."""

    def __init__(
        self,
        model: Path,
        *,
        windows: Sequence[int] = (0,),
        blocks: int = BLOCKS,
        extra: dict[str, Any] | None = None,
        connector: dict[str, Any] | None = None,
        batch_tokens: int = 512,
        policy: str = "recompute",
        several: bool = False,
    ) -> None:
        """``windows``: per KV group its window, 0 for full attention; ``several``: connectors within one."""
        global NODE
        self.node = NODE = ScriptedNode()
        settings = {"blockyard.socket": "/nowhere/engines.sock", "blockyard.block_tokens": ROW, **(extra or {})}
        transfer = KVTransferConfig(
            **{
                "kv_connector": "ScriptedConnector",
                "kv_connector_module_path": __name__,
                "kv_role": "kv_both",
                "kv_load_failure_policy": policy,
                "kv_connector_extra_config": settings,
                **(connector or {}),
            }
        )
        cache = CacheConfig(block_size=BLOCK, enable_prefix_caching=True)
        cache.kv_cache_layout = "LBHNC"
        config = VllmConfig(
            model_config=ModelConfig(model=str(model), dtype="float32", seed=0, skip_tokenizer_init=True),
            scheduler_config=SchedulerConfig(
                max_num_seqs=8,
                max_num_batched_tokens=batch_tokens,
                max_model_len=1024,
                enable_chunked_prefill=True,
                is_encoder_decoder=False,
            ),
            cache_config=cache,
            device_config=DeviceConfig("cpu"),
            kv_transfer_config=transfer,
        )
        config.cache_config.block_size = BLOCK
        config.cache_config.num_gpu_blocks = blocks
        kv_config = KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec([f"layer{i}"], _spec(window)) for i, window in enumerate(windows)],
        )
        self.config, self.kv_config = config, kv_config
        self.scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=kv_config,
            log_stats=True,
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK,
        )
        self.connector: Any = self.scheduler.connector
        kind = KVConnectorFactory.get_connector_class(transfer) if several else ScriptedConnector
        self.rank: Any = kind(config, KVConnectorRole.WORKER, kv_config)
        self.free_at_start = self.free

    @property
    def half(self) -> Any:
        """Scheduler half of the connector."""
        return self.connector._scheduler

    @property
    def free(self) -> int:
        """Free blocks of the engine."""
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def request(
        self, name: str, tokens: int, *, seed: int = 0, output: int = 2, parameters: dict[str, Any] | None = None
    ) -> Request:
        """A request with a prompt of its own for each seed, added to the engine."""
        extra = None if parameters is None else {"kv_transfer_params": parameters}
        sampling = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True, extra_args=extra)
        sampling.update_from_generation_config({}, 2)
        request = Request(
            request_id=name,
            prompt_token_ids=[seed + 1 + index % 400 for index in range(tokens)],
            sampling_params=sampling,
            pooling_params=None,
            mm_features=None,
            block_hasher=get_request_block_hasher(BLOCK, HASH),
        )
        self.scheduler.add_request(request)
        return request

    def schedule(self) -> Step:
        """Schedule one step."""
        scheduled = self.scheduler.schedule()
        return Step(scheduled, getattr(scheduled.kv_connector_metadata, "plan", None))

    def finish(self, step: Step) -> None:
        """The rank carries the step out, and the scheduler hears of it."""
        rank = self.rank
        metadata = step.scheduled.kv_connector_metadata
        rank.handle_preemptions(metadata)
        rank.bind_connector_metadata(metadata)
        rank.start_load_kv(None)
        rank.wait_for_save()
        results = rank.get_transfer_results(step.scheduled.finished_req_ids)
        output = KVConnectorOutput(
            finished_sending=results.finished_sending,
            finished_recving=results.finished_recving,
            failed_recving=results.failed_recving,
            invalid_block_ids=rank.get_block_ids_with_load_errors(),
            kv_connector_worker_meta=rank.build_connector_worker_meta(),
        )
        rank.clear_connector_metadata()
        names = list(step.scheduled.num_scheduled_tokens)
        self.scheduler.update_from_output(
            step.scheduled,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=[self._sampled(name, step) for name in names],
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=None,
                # As the engine's workers do it: after an empty step, ranks that have nothing to say are not heard.
                kv_connector_output=None if not names and output.is_empty() else output,
            ),
        )

    def _sampled(self, name: str, step: Step) -> list[int]:
        request = self.scheduler.requests.get(name)
        # A chunk of a prompt that does not reach its end samples nothing.
        return [5] if request is not None and request.num_computed_tokens >= request.num_tokens else []

    def step(self) -> Step:
        """One whole step."""
        step = self.schedule()
        self.finish(step)
        return step

    def run(self, limit: int = 60) -> None:
        """Until no request is left."""
        for _ in range(limit):
            if not self.scheduler.has_requests() and not self.connector.has_pending_push_work():
                return
            self.step()
        raise AssertionError(f"requests do not end: {list(self.scheduler.requests)}")

    def check_nothing_is_left(self) -> None:
        """No request, no held block, and nothing of ours that waits."""
        self.run()
        assert self.free == self.free_at_start
        assert not self.scheduler.requests
        assert not self.half._requests
        assert not self.half._loads
        assert not self.half._held

    def close(self) -> None:
        """End."""
        self.scheduler.shutdown()
        self.rank.shutdown()


def _spec(window: int) -> Any:
    common = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 64, "dtype": torch.float32}
    return SlidingWindowSpec(sliding_window=window, **common) if window else FullAttentionSpec(**common)


def table(engine: Engine, name: str, group: int = 0) -> list[int]:
    """Blocks of a request."""
    return list(engine.scheduler.kv_cache_manager.get_block_ids(name)[group])
