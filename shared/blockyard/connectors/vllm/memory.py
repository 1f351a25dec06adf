"""KV memory of an engine on CPU in a sealed memory file, which the node's worker maps.

The engine allocates its whole KV cache with one call of ``torch.zeros`` within the context that the connector gives it.
In that context the one-dimensional allocation is made from a memory file instead: the engine, its views and the worker
see the same pages, without a copy.
Invariants: one allocation per context is replaced, every other one stays torch's; the file is sealed, so that it cannot
shrink under whoever maps it, and lives as long as a tensor or the connector needs it.
Threading: the engine's worker thread.
"""

import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import torch
from torch.overrides import TorchFunctionMode

from blockyard.connectors.sealed_memory import sealed_memory
from blockyard.core.errors import LayoutMismatchError

_LEAST_BYTES: Final = 1 << 12
"""Smaller allocations beside the KV cache are torch's."""


@final
class SharedKvMemory(TorchFunctionMode):  # type: ignore[misc]  # torch is not installed where types are checked
    """Context in which the KV cache is allocated, and its memory file afterwards."""

    def __init__(self) -> None:
        """Prepare; nothing is allocated yet."""
        super().__init__()
        self.fd = -1
        self.memory_bytes = 0
        self._address = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Replace the allocation of the KV cache; everything else is torch's."""
        kwargs = kwargs or {}
        if func is torch.zeros and self.fd < 0 and _is_kv_cache(args, kwargs):
            return self._allocate(args[0])
        return func(*args, **kwargs)

    def offset_of(self, tensor: Any) -> int:
        """Byte at which a view of the KV cache begins in the file.

        Raises:
            LayoutMismatchError: the tensor lies elsewhere.
        """
        offset = int(tensor.data_ptr()) - self._address
        if self.fd < 0 or not 0 <= offset < self.memory_bytes:
            raise LayoutMismatchError("the engine's KV cache does not lie in the memory that it was given")
        return offset

    def close(self) -> None:
        """Close the descriptor; the pages live on while a tensor or the node maps them."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _allocate(self, size: int) -> Any:
        self.fd = sealed_memory("blockyard-kv", size)
        self.memory_bytes = os.fstat(self.fd).st_size
        pages = mmap.mmap(self.fd, self.memory_bytes)
        # The tensor keeps the mapping alive for as long as any view of it lives.
        tensor = torch.frombuffer(pages, dtype=torch.int8, count=size)
        self._address = int(tensor.data_ptr())
        return tensor


def _is_kv_cache(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    device = kwargs.get("device")
    return (
        len(args) == 1
        and isinstance(args[0], int)
        and args[0] >= _LEAST_BYTES
        and kwargs.get("dtype") is torch.int8
        and (device is None or torch.device(device).type == "cpu")
    )
