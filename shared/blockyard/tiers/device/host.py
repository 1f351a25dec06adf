"""Host memory as a device: engines that compute on the CPU, and tests.

A side stream is a thread, or, ``inline``, the caller itself. The engine computes in the thread that calls, so its
compute stream is always inline: what was computed before a call is done, and to wait on it is to block.
Invariants: copies are checked when they are submitted; nothing in a stream's thread can fail.
Threading: one thread submits and queries; each side stream has a thread of its own.
"""

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeAlias, final

import numpy as np

from blockyard.core.errors import LayoutMismatchError, UnsupportedOperationError
from blockyard.core.kv_groups import Region
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.device.base import Event, PageCopy, SourceOrder, Stream

HostPages: TypeAlias = ByteArray
"""Two-dimensional view: one row of page bytes per engine block."""


def host_pages(memory: ByteArray, region: Region, blocks: int) -> HostPages:
    """The pages of a region in flat host memory.

    Raises:
        LayoutMismatchError: the region leaves the memory, or its pages overlap.
    """
    end = region.offset_bytes + (blocks - 1) * region.stride_bytes + region.page_bytes
    if blocks < 1 or region.offset_bytes < 0 or region.page_bytes < 1 or end > memory.size:
        raise LayoutMismatchError("a region leaves the KV memory", end=end, memory=memory.size, blocks=blocks)
    if blocks > 1 and region.stride_bytes < region.page_bytes:
        raise LayoutMismatchError("pages overlap", stride=region.stride_bytes, page=region.page_bytes)
    start = memory[region.offset_bytes :]
    return np.lib.stride_tricks.as_strided(start, (blocks, region.page_bytes), (region.stride_bytes, 1))


def check_host_copies(copies: Sequence[PageCopy[HostPages]]) -> None:
    """Refuse copies that do not fit.

    Raises:
        LayoutMismatchError: there is no such page, or its place has another size.
    """
    for copy in copies:
        blocks, page_bytes = copy.pages.shape
        if copy.host.shape != (len(copy.indexes), page_bytes):
            raise LayoutMismatchError("pages and their places differ in size", page=page_bytes, pages=len(copy.indexes))
        if any(not 0 <= index < blocks for index in copy.indexes):
            raise LayoutMismatchError("there is no such engine block", blocks=blocks, asked=max(copy.indexes))


@final
class HostEvent:
    """A point on a stream of a host device."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        """Begin unrecorded: nothing to wait for."""
        self.done = threading.Event()
        self.done.set()

    def query(self) -> bool:
        """Whether the latest record was reached."""
        return self.done.is_set()


@final
class InlineStream:
    """Work is done when it is submitted."""

    def record(self, event: Event) -> None:
        """All work so far is done, and so is the event."""
        done = _host_event(event).done = threading.Event()
        done.set()

    def wait(self, event: Event) -> None:
        """Block until the event is done."""
        _host_event(event).done.wait()

    def submit(self, work: Callable[[], None]) -> None:
        """Do it."""
        work()

    def close(self) -> None:
        """Nothing is left to do."""


@final
class ThreadStream:
    """Work is done by one thread, in order."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def record(self, event: Event) -> None:
        """Set the event when its turn comes."""
        done = _host_event(event).done = threading.Event()
        self._work.put(done.set)

    def wait(self, event: Event) -> None:
        """Hold what follows until this record of the event is done."""
        done = _host_event(event).done
        self._work.put(lambda: _wait(done))

    def submit(self, work: Callable[[], None]) -> None:
        """Do it when its turn comes."""
        self._work.put(work)

    def close(self) -> None:
        """Do what was submitted, then end."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()


@final
class HostDevice:
    """Copies between host memory and host memory; close it, or use it as a context manager."""

    def __init__(self, *, inline: bool = False) -> None:
        """Begin without side streams.

        Args:
            inline: side streams work at submission instead of in threads.
        """
        self._inline = inline
        self._compute = InlineStream()
        self._streams: list[InlineStream | ThreadStream] = []

    @property
    def compute_stream(self) -> InlineStream:
        """The caller's thread."""
        return self._compute

    def new_stream(self) -> Stream:
        """A side stream."""
        stream = InlineStream() if self._inline else ThreadStream(f"kv-copies-{len(self._streams)}")
        self._streams.append(stream)
        return stream

    def new_event(self) -> HostEvent:
        """An event that was never recorded."""
        return HostEvent()

    def page_shape(self, pages: HostPages) -> tuple[int, int]:
        """Number of pages, and bytes of one."""
        return int(pages.shape[0]), int(pages.shape[1])

    def copy_to_host(self, stream: Stream, copies: Sequence[PageCopy[HostPages]], order: SourceOrder) -> None:
        """Copy out of pages."""
        work = _checked(copies, order)
        _own(stream).submit(lambda: _copy_out(work))

    def copy_to_device(self, stream: Stream, copies: Sequence[PageCopy[HostPages]], order: SourceOrder) -> None:
        """Copy into pages."""
        work = _checked(copies, order)
        _own(stream).submit(lambda: _copy_in(work))

    def register_host(self, memory: ByteArray, unit_bytes: int) -> None:
        """Host memory needs no pinning to be copied by the host."""

    def unregister_host(self, memory: ByteArray) -> None:
        """Nothing was pinned."""

    def synchronize(self) -> None:
        """Wait for all side streams."""
        for stream in self._streams:
            end = HostEvent()
            stream.record(end)
            end.done.wait()

    def close(self) -> None:
        """Wait, and end the threads."""
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.close()

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _checked(copies: Sequence[PageCopy[HostPages]], order: SourceOrder) -> tuple[PageCopy[HostPages], ...]:
    if order is not SourceOrder.STREAM:
        raise UnsupportedOperationError("streams of the host read in order", order=order.value)
    check_host_copies(copies)
    return tuple(copies)


def _copy_out(copies: Sequence[PageCopy[HostPages]]) -> None:
    for copy in copies:
        for place, index in zip(copy.host, copy.indexes, strict=True):
            place[:] = copy.pages[index]


def _copy_in(copies: Sequence[PageCopy[HostPages]]) -> None:
    for copy in copies:
        for place, index in zip(copy.host, copy.indexes, strict=True):
            copy.pages[index] = place


def _wait(done: threading.Event) -> None:
    done.wait()


def _own(stream: Stream) -> InlineStream | ThreadStream:
    if not isinstance(stream, InlineStream | ThreadStream):
        raise UnsupportedOperationError("a stream of another device", stream=type(stream).__name__)
    return stream


def _host_event(event: Event) -> HostEvent:
    if not isinstance(event, HostEvent):
        raise UnsupportedOperationError("an event of another device", event=type(event).__name__)
    return event
