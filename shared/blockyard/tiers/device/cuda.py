"""CUDA through torch, which the engine brings along: the only file that imports it.

Untested: it needs a GPU, and no test of this project runs on one. It follows the port that the host device and the
simulated one are tested with, and decides nothing itself.
Pages of a region are a two-dimensional ``uint8`` tensor, one row per engine block; rows must be contiguous.
``cudaMemcpyAsync``, which ``copy_`` is, reads its source in stream order; host memory that is not registered makes the
same copies block their caller.
Threading: one thread, that in which the engine submits its kernels.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, final

import torch

from blockyard.core.errors import ConfigurationError, UnsupportedOperationError
from blockyard.core.kv_groups import Region
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.device.base import Event, PageCopy, SourceOrder, Stream

CudaPages: TypeAlias = Any
"""A ``torch.Tensor``; torch has no types where it is not installed."""
_PIECE_BYTES: Final = 256 << 20
"""Registering locks pages: pieces keep other threads of the driver from waiting for the whole arena."""


def cuda_pages(memory: Any, region: Region, blocks: int) -> CudaPages:
    """The pages of a region in a rank's KV memory, a flat ``uint8`` tensor."""
    start = memory.storage_offset() + region.offset_bytes
    return torch.as_strided(memory, (blocks, region.page_bytes), (region.stride_bytes, 1), start)


@final
class CudaEvent:
    """An event without timing."""

    __slots__ = ("native",)

    def __init__(self) -> None:
        """Begin unrecorded."""
        self.native = torch.cuda.Event(enable_timing=False)

    def query(self) -> bool:
        """Whether the latest record was reached."""
        return bool(self.native.query())


@final
class CudaStream:
    """A stream of torch."""

    __slots__ = ("native",)

    def __init__(self, native: Any) -> None:
        """Wrap it."""
        self.native = native

    def record(self, event: Event) -> None:
        """Record on this stream."""
        self.native.record_event(_native(event))

    def wait(self, event: Event) -> None:
        """Wait on the device."""
        self.native.wait_event(_native(event))


@final
class CudaDevice:
    """One GPU."""

    def __init__(self, index: int) -> None:
        """Use the GPU with this number in this process."""
        self._device = torch.device("cuda", index)
        self._registered: dict[int, list[int]] = {}

    @property
    def compute_stream(self) -> CudaStream:
        """The stream that is current in this thread."""
        return CudaStream(torch.cuda.current_stream(self._device))

    def new_stream(self) -> CudaStream:
        """A side stream."""
        return CudaStream(torch.cuda.Stream(self._device))

    def new_event(self) -> CudaEvent:
        """An event that was never recorded."""
        return CudaEvent()

    def page_shape(self, pages: CudaPages) -> tuple[int, int]:
        """Number of pages, and bytes of one."""
        return int(pages.shape[0]), int(pages.shape[1])

    def copy_to_host(self, stream: Stream, copies: Sequence[PageCopy[CudaPages]], order: SourceOrder) -> None:
        """Copy out of pages."""
        with torch.cuda.stream(_stream(stream, order)):
            for copy in copies:
                for place, index in zip(copy.host, copy.indexes, strict=True):
                    torch.from_numpy(place).copy_(copy.pages[index], non_blocking=True)

    def copy_to_device(self, stream: Stream, copies: Sequence[PageCopy[CudaPages]], order: SourceOrder) -> None:
        """Copy into pages."""
        with torch.cuda.stream(_stream(stream, order)):
            for copy in copies:
                for place, index in zip(copy.host, copy.indexes, strict=True):
                    copy.pages[index].copy_(torch.from_numpy(place), non_blocking=True)

    def register_host(self, memory: ByteArray, unit_bytes: int) -> None:
        """Pin, piece by piece; a copy must lie in one piece, so pieces are whole units."""
        piece = max(_PIECE_BYTES // unit_bytes, 1) * unit_bytes
        start, size = int(memory.ctypes.data), int(memory.nbytes)
        runtime = torch.cuda.cudart()
        pinned = self._registered.setdefault(start, [])
        for offset in range(0, size, piece):
            status = int(runtime.cudaHostRegister(start + offset, min(piece, size - offset), 0))
            if status:
                self.unregister_host(memory)
                raise ConfigurationError("the arena cannot be pinned for the GPU", cuda_error=status, bytes=size)
            pinned.append(start + offset)

    def unregister_host(self, memory: ByteArray) -> None:
        """Unpin; no copy may be under way."""
        runtime = torch.cuda.cudart()
        for address in self._registered.pop(int(memory.ctypes.data), ()):
            runtime.cudaHostUnregister(address)

    def synchronize(self) -> None:
        """Wait for the GPU."""
        torch.cuda.synchronize(self._device)

    def close(self) -> None:
        """Wait; streams and events go with their last reference."""
        self.synchronize()


def _native(event: Event) -> Any:
    if not isinstance(event, CudaEvent):
        raise UnsupportedOperationError("an event of another device", event=type(event).__name__)
    return event.native


def _stream(stream: Stream, order: SourceOrder) -> Any:
    if order is not SourceOrder.STREAM or not isinstance(stream, CudaStream):
        raise UnsupportedOperationError("not a stream of this device", stream=type(stream).__name__, order=order.value)
    return stream.native
