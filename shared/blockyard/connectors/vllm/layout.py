"""The engine's configuration in the node's words: groups, regions, ranks and identity; and what is refused, by name.

Pages are whole engine blocks of one layer, copied as they lie: kernels on CPU pack the inside of a block by the
instruction set, so nothing smaller than a block has a meaning of its own. What two engines must have in common to
understand each other's pages is in the identity.
Invariants: a configuration that is not understood is refused at start; nothing is guessed.
Threading: pure functions over the engine's configuration.
"""

import hashlib
import json
import math
import os
import platform
from collections.abc import Mapping
from typing import Any, Final

import torch
import vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

from blockyard.connectors.engine_description import EngineDescription
from blockyard.connectors.vllm.engine_log import join_engine_log
from blockyard.connectors.vllm.memory import SharedKvMemory
from blockyard.connectors.vllm.settings import LONGEST_NAME, PREFIX, ConnectorSettings
from blockyard.connectors.vllm.tracked_request import EngineFacts
from blockyard.core.errors import ConfigurationError, LayoutMismatchError
from blockyard.core.identity import ModelIdentity
from blockyard.core.kv_groups import GroupKind, KvGroup, Region, group_spec
from blockyard.core.vocabulary import EngineId, Executor, GroupId

_FULL: Final = (FullAttentionSpec, MLAAttentionSpec)
_WINDOW: Final = (SlidingWindowSpec, SlidingWindowMLASpec)
_LATENT: Final = (MLAAttentionSpec, SlidingWindowMLASpec)


# --- what is refused ----------------------------------------------------------------------------------------------
def check_engine(config: Any, settings: ConnectorSettings) -> None:
    """Refuse what this connector cannot serve; what is to be said of others appears in the log of the engine.

    Raises:
        ConfigurationError: names the engine's option.
    """
    join_engine_log()  # this is called in every process of the engine, before anything has to be said
    _check_name(engine_id(config, settings))
    parallel, cache, transfer = config.parallel_config, config.cache_config, config.kv_transfer_config
    for option, limit in (
        ("pipeline_parallel_size", 1),
        ("prefill_context_parallel_size", 1),
        ("decode_context_parallel_size", 1),
        ("nnodes", 1),
    ):
        value = getattr(parallel, option, 1)
        if value > limit:
            raise ConfigurationError("the connector does not serve engines with this", option=option, value=value)
    if getattr(config.model_config, "is_encoder_decoder", False):
        raise ConfigurationError("cross-attention is not cached", option="is_encoder_decoder")
    if not cache.enable_prefix_caching and not config.scheduler_config.enable_chunked_prefill:
        # What an engine on CPU without AMX does by itself for latent attention: its kernels would compute the rest of a
        # prompt as if nothing came before, and answer wrongly.
        raise ConfigurationError(
            "with neither chunked prefill nor a prefix cache of its own, the engine cannot go on after a loaded prefix",
            option="enable_chunked_prefill",
        )
    algorithm = str(cache.prefix_caching_hash_algo)
    if "xxhash" in algorithm and not os.environ.get("PYTHONHASHSEED"):
        raise ConfigurationError(
            "this hash begins with a number of its own in every process: set PYTHONHASHSEED to one value everywhere, "
            "or take sha256",
            option="prefix_caching_hash_algo",
            value=algorithm,
        )
    if transfer.kv_load_failure_policy != "recompute":
        raise ConfigurationError(
            "a load that fails would end its request: set it to recompute",
            option="kv_load_failure_policy",
            value=str(transfer.kv_load_failure_policy),
        )
    on_cpu = _on_cpu(config)
    copies_itself = executor_of(config, settings) is Executor.ENGINE
    if not copies_itself and not hasattr(KVConnectorBase_V1, "get_mem_pool_context"):
        raise ConfigurationError(
            "this version of the engine does not let a connector say where its KV cache lies: at least 0.32 is needed",
            version=vllm.__version__,
            setting=PREFIX + "executor",
            needed="engine",
        )
    if not copies_itself and not on_cpu:
        raise ConfigurationError(
            "the memory of this device cannot be mapped by the node", setting=PREFIX + "executor", needed="engine"
        )


def executor_of(config: Any, settings: ConnectorSettings) -> Executor:
    """Who copies."""
    if settings.executor is not None:
        return settings.executor
    return Executor.MAPPED if _on_cpu(config) else Executor.ENGINE


# --- groups -------------------------------------------------------------------------------------------------------
def kv_groups(kv_cache_config: Any) -> tuple[KvGroup, ...]:
    """KV groups of the model.

    Raises:
        ConfigurationError: a group has an attention rule that this connector does not know.
    """
    return tuple(_group(number, group) for number, group in enumerate(kv_cache_config.kv_cache_groups))


def engine_facts(config: Any, kv_cache_config: Any, settings: ConnectorSettings) -> EngineFacts:
    """How the engine's blocks fit those of the node.

    Raises:
        ConfigurationError: as ``kv_groups``; or blocks do not fit into each other.
    """
    groups = kv_groups(kv_cache_config)
    if len(groups) > 1 and not hasattr(KVConnectorBase_V1, "get_transfer_results"):
        raise ConfigurationError(
            "this version of the engine cannot hear that a load of several KV groups failed: at least 0.32 is needed",
            version=vllm.__version__,
            groups=len(groups),
        )
    tokens = settings.block_tokens
    hash_tokens = _hash_tokens(config, kv_cache_config, groups)
    for size in (hash_tokens, *(group.engine_block_tokens for group in groups)):
        if tokens % size:
            raise ConfigurationError(
                "a block of the node is a whole number of engine blocks",
                setting=PREFIX + "block_tokens",
                block_tokens=tokens,
                engine_block_tokens=size,
            )
    ranks = config.parallel_config.tensor_parallel_size
    row_bytes = sum(
        _layer_bytes(spec) * len(spec.layer_names) * group.pages_per_row(tokens) * group.shards(ranks)
        for group, spec in zip(groups, kv_cache_config.kv_cache_groups, strict=True)
    )
    return EngineFacts(
        groups=groups,
        block_tokens=tokens,
        hash_tokens=hash_tokens,
        row_bytes=row_bytes,
        ranks=ranks,
        reads=bool(config.kv_transfer_config.is_kv_consumer),
        writes=bool(config.kv_transfer_config.is_kv_producer),
    )


def regions(
    kv_cache_config: Any, kv_caches: Mapping[str, torch.Tensor], memory: SharedKvMemory | None
) -> tuple[tuple[Region, ...], ...]:
    """Where the pages of each group lie: one region per layer, in the order of the group's layers.

    Without ``memory`` offsets count from the lowest address of all layers.

    Raises:
        LayoutMismatchError: the pages of a layer are not whole blocks; names the layer.
    """
    lowest = min(tensor.data_ptr() for tensor in kv_caches.values())
    found = []
    for group in kv_cache_config.kv_cache_groups:
        seen: dict[int, Region] = {}
        for layer in group.layer_names:
            if layer not in kv_caches:
                raise LayoutMismatchError("a layer of a KV group has no KV cache", layer=layer)
            tensor = kv_caches[layer]
            offset = tensor.data_ptr() - lowest if memory is None else memory.offset_of(tensor)
            # Layers may share their cache: its pages are moved once.
            seen.setdefault(offset, _region(layer, tensor, kv_cache_config.num_blocks, offset))
        found.append(tuple(seen.values()))
    return tuple(found)


# --- identity -----------------------------------------------------------------------------------------------------
def description(config: Any, kv_cache_config: Any, settings: ConnectorSettings) -> EngineDescription:
    """Who the engine is.

    Raises:
        ConfigurationError: as ``engine_facts``.
    """
    facts = engine_facts(config, kv_cache_config, settings)
    model, cache, parallel = config.model_config, config.cache_config, config.parallel_config
    identity = ModelIdentity(
        model=settings.model or str(model.model),
        weights_version=settings.weights_version or str(model.revision or "main"),
        config_digest=_config_digest(model),
        kv_dtype=str(cache.cache_dtype if cache.cache_dtype != "auto" else model.dtype),
        layout_fingerprint=_layout_fingerprint(config, kv_cache_config),
        engine_block_tokens=math.gcd(*(group.engine_block_tokens for group in facts.groups)),
        block_tokens=facts.block_tokens,
        block_bytes=max(
            _layer_bytes(spec) * len(spec.layer_names) * group.pages_per_row(facts.block_tokens)
            for group, spec in zip(facts.groups, kv_cache_config.kv_cache_groups, strict=True)
        ),
        group_spec=group_spec(facts.groups),
        parallel_shape=f"tp{parallel.tensor_parallel_size}",
        hash_version=_hash_version(config),
    )
    return EngineDescription(
        engine=engine_id(config, settings),
        identity=identity,
        dp_rank=dp_rank(config),
        blocks=kv_cache_config.num_blocks,
        groups=facts.groups,
        ranks=facts.ranks,
        executor=executor_of(config, settings),
        life=engine_life(config),
    )


def engine_id(config: Any, settings: ConnectorSettings) -> EngineId:
    """Name of the engine at the node, the same in all its processes."""
    return EngineId(settings.name or str(config.kv_transfer_config.engine_id))


def engine_life(config: Any) -> str:
    """Name of this start of the engine, the same in all its processes: one that outlived it is no rank of the next."""
    return str(config.instance_id)


def dp_rank(config: Any) -> int:
    """Which of the data-parallel engines this is; those of dense models count themselves as the only one."""
    parallel = config.parallel_config
    return int(getattr(parallel, "data_parallel_index", parallel.data_parallel_rank))


# --- inside -------------------------------------------------------------------------------------------------------
def _check_name(name: EngineId) -> None:
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise ConfigurationError(
            "the node takes printable names of engines, none of them so long",
            option="engine_id",
            characters=len(name),
            limit=LONGEST_NAME,
        )


def _on_cpu(config: Any) -> bool:
    return str(config.device_config.device_type) == "cpu"


def _layer_spec(group: Any) -> Any:
    spec = group.kv_cache_spec
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return next(iter(spec.kv_cache_specs.values()))
    return spec


def _layer_bytes(group: Any) -> int:
    return int(_layer_spec(group).page_size_bytes)


def _group(number: int, group: Any) -> KvGroup:
    spec = _layer_spec(group)
    # By exact type: a subclass of an attention rule is another rule.
    if type(spec) in _FULL:
        kind, window = GroupKind.FULL, 0
    elif type(spec) in _WINDOW:
        kind, window = GroupKind.SLIDING_WINDOW, int(spec.sliding_window)
    else:
        raise ConfigurationError(
            "the model has a KV group of a kind that is not cached", group=number, kind=type(spec).__name__
        )
    return KvGroup(
        group=GroupId(number),
        kind=kind,
        engine_block_tokens=int(spec.block_size),
        window_tokens=window,
        replicated=type(spec) in _LATENT,
    )


def _hash_tokens(config: Any, kv_cache_config: Any, groups: tuple[KvGroup, ...]) -> int:
    if len(groups) == 1:
        return groups[0].engine_block_tokens
    given = (
        getattr(kv_cache_config, "hash_block_size", None)
        or getattr(config.cache_config, "hash_block_size", None)
        or getattr(config.cache_config, "prefix_match_unit", None)
    )
    return int(given) if given else math.gcd(*(group.engine_block_tokens for group in groups))


def _region(layer: str, tensor: torch.Tensor, blocks: int, offset: int) -> Region:
    """Region of one layer; kernels may cut a block into several, which lie side by side."""
    pieces, rest = divmod(tensor.shape[0], blocks)
    item = tensor.element_size()
    inside = sum((size - 1) * stride for size, stride in zip(tensor.shape[1:], tensor.stride()[1:], strict=True)) + 1
    dense = inside == math.prod(tensor.shape[1:])
    if rest or pieces < 1 or not dense or (pieces > 1 and tensor.stride(0) != inside):
        raise LayoutMismatchError(
            "the blocks of a layer are not whole stretches of memory: choose a KV cache layout with blocks outermost",
            layer=layer,
            shape=str(tuple(tensor.shape)),
            strides=str(tuple(tensor.stride())),
        )
    return Region(offset, tensor.stride(0) * pieces * item, inside * pieces * item)


def _config_digest(model: Any) -> str:
    described = model.hf_config.to_dict() if hasattr(model.hf_config, "to_dict") else {}
    # The names that a folder or a release of the library gives itself say nothing about the bytes.
    facts = {key: value for key, value in described.items() if key not in ("_name_or_path", "transformers_version")}
    text = json.dumps(
        {"config": facts, "quantization": str(model.quantization), "dtype": str(model.dtype)},
        sort_keys=True,
        default=str,
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _layout_fingerprint(config: Any, kv_cache_config: Any) -> str:
    specs = [_layer_spec(group) for group in kv_cache_config.kv_cache_groups]
    pages = [
        f"{type(spec).__name__}:{spec.block_size}:{getattr(spec, 'num_kv_heads', '')}:{getattr(spec, 'head_size', '')}"
        f":{getattr(spec, 'dtype', '')}:{spec.page_size_bytes}x{len(group.layer_names)}"
        for spec, group in zip(specs, kv_cache_config.kv_cache_groups, strict=True)
    ]
    layout = getattr(kv_cache_config, "kv_cache_layout", None) or getattr(config.cache_config, "kv_cache_layout", None)
    if _on_cpu(config):
        tiles = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
        where = f"cpu:{platform.machine()}:{torch.backends.cpu.get_cpu_capability()}:{'amx' if tiles else 'no-amx'}"
    else:
        where = str(config.device_config.device_type)
    return f"vllm-{vllm.__version__}|{layout}|{where}|{','.join(pages)}"


def _hash_version(config: Any) -> str:
    seed = os.environ.get("PYTHONHASHSEED")
    version = f"vllm-{vllm.__version__}-{config.cache_config.prefix_caching_hash_algo}"
    # A seed begins the chain of hashes; it is not told to the node, only that another one gives other names.
    return version if seed is None else f"{version}-{hashlib.sha256(seed.encode()).hexdigest()[:8]}"
