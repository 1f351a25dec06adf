"""Two engines of one model, alike but for the connector, and the node under the one that has it.

Threading: one thread; only one of the engines works at a time, so neither disturbs the other.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.engine.child import EngineChild
from bench.engine.models import BLOCK_TOKENS, BenchModel
from bench.engine.node import node_of
from blockyard.cli.run_folder import RunFolder

_NODE_BLOCKS: Final = 640
"""Twice what one replay of the trace needs."""
_OPTIONS: Final[dict[str, Any]] = {
    "max_model_len": 2_304,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 512,
    # Two of the longest prompts: what a conversation left behind is gone before its next turn.
    "num_gpu_blocks_override": 140,
    "kv_cache_memory_bytes": 512 << 20,
}


@dataclass(frozen=True, slots=True)
class EnginePair:
    """The engines; both are ready."""

    off: EngineChild
    on: EngineChild
    version: str
    """Of the engine."""


@contextmanager
def engine_pair(model: BenchModel) -> Iterator[EnginePair]:
    """Both engines, and a node for one of them.

    Raises:
        ChildError: an engine does not start; its log says why.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder())
        node = stack.enter_context(
            node_of(folder, block_bytes=model.block_bytes, block_tokens=BLOCK_TOKENS, blocks=_NODE_BLOCKS)
        )
        weights = str(folder.path / "model")
        off = stack.enter_context(EngineChild("engine", folder.logs / "engine-off.log"))
        off.ask("make_model", folder=weights, shape=model.shape())
        version = off.ask("start", folder=weights, options=_OPTIONS, connector=None)["version"]
        on = stack.enter_context(EngineChild("engine", folder.logs / "engine-on.log"))
        on.ask("start", folder=weights, options=_OPTIONS, connector=connector_config(node.engine_socket))
        yield EnginePair(off, on, version)


def connector_config(socket: Path, *, block_tokens: int = BLOCK_TOKENS) -> dict[str, Any]:
    """Fields of the engine's transfer config, as an operator would set them."""
    return {
        "kv_connector": "BlockyardConnector",
        "kv_connector_module_path": "blockyard.connectors.vllm.connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"blockyard.socket": str(socket), "blockyard.block_tokens": block_tokens},
    }
