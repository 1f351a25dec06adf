"""The pages of a rank's KV cache as its copies name them, and the device that they are on (executor ``engine``).

A page is that of ``layout.regions``: one engine block of one layer, cut out of the storage of the layer's tensor, which
layers may share. So the KV cache stays where the engine allocated it.
Threading: the engine's worker thread.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import torch

from blockyard.connectors.rank_copies import RankLayout
from blockyard.connectors.vllm import layout
from blockyard.connectors.vllm.engine_copies import EngineCopies
from blockyard.connectors.vllm.tracked_request import EngineFacts
from blockyard.core.errors import UnsupportedOperationError
from blockyard.core.kv_groups import Region
from blockyard.tiers.device.host import HostDevice, host_pages

Regions = tuple[tuple[Region, ...], ...]


@final
class KvPages:
    """A KV cache cut into pages."""

    def __init__(self, kv_cache_config: Any, kv_caches: Mapping[str, torch.Tensor]) -> None:
        """Cut.

        Raises:
            LayoutMismatchError: the pages of a layer are not whole blocks; names the layer.
        """
        self.regions: Regions = layout.regions(kv_cache_config, kv_caches, None)
        """Offsets count from the lowest address of all layers."""
        self.device: torch.device = next(iter(kv_caches.values())).device
        self._blocks = int(kv_cache_config.num_blocks)
        self._tensors = tuple(
            _once(kv_caches[layer] for layer in group.layer_names) for group in kv_cache_config.kv_cache_groups
        )

    def copies(self, facts: EngineFacts, rank: int) -> EngineCopies[Any]:
        """What copies them.

        Raises:
            UnsupportedOperationError: there are no copies for the device of this KV cache.
        """
        if self.device.type == "cpu":
            return EngineCopies(self._layout(facts, rank, _host), HostDevice)
        if self.device.type != "cuda":
            raise UnsupportedOperationError("there are no copies for this device", device=str(self.device))
        # Its module needs a torch that was built for the device.
        from blockyard.tiers.device.cuda import CudaDevice, cuda_pages  # noqa: PLC0415

        index = self.device.index or 0
        return EngineCopies(self._layout(facts, rank, cuda_pages), lambda: CudaDevice(index))

    def _layout(
        self, facts: EngineFacts, rank: int, cut: Callable[[torch.Tensor, Region, int], Any]
    ) -> RankLayout[Any]:
        pages = tuple(
            tuple(
                cut(_storage(tensor), _within_storage(tensor, region), self._blocks)
                for tensor, region in zip(tensors, regions, strict=True)
            )
            for tensors, regions in zip(self._tensors, self.regions, strict=True)
        )
        return RankLayout(rank, facts.ranks, facts.block_tokens, facts.groups, pages)


def _once(tensors: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Layers that share their cache count once, as in ``layout.regions``."""
    seen: dict[int, torch.Tensor] = {}
    for tensor in tensors:
        seen.setdefault(tensor.data_ptr(), tensor)
    return tuple(seen.values())


def _storage(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _within_storage(tensor: torch.Tensor, region: Region) -> Region:
    offset = tensor.storage_offset() * tensor.element_size()
    return Region(offset, region.stride_bytes, region.page_bytes)


def _host(memory: torch.Tensor, region: Region, blocks: int) -> Any:
    return host_pages(memory.numpy(), region, blocks)
