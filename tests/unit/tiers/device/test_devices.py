"""What every device promises: order within a stream, waits across streams, honest events, copies that fit."""

import threading
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from blockyard.core.errors import LayoutMismatchError, UnsupportedOperationError
from blockyard.core.kv_groups import Region
from blockyard.testing.byte_patterns import pattern
from blockyard.testing.sim_device import SimDevice
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.device.base import PageCopy, SourceOrder
from blockyard.tiers.device.host import HostDevice, HostPages, host_pages

BLOCKS, PAGE = 4, 64
AnyDevice = HostDevice | SimDevice


@pytest.fixture(params=["threads", "inline", "simulated"])
def device(request: pytest.FixtureRequest) -> Iterator[AnyDevice]:
    made: AnyDevice = (
        SimDevice(Random(1)) if request.param == "simulated" else HostDevice(inline=request.param == "inline")
    )
    yield made
    made.close()


@pytest.fixture
def pages() -> HostPages:
    memory: ByteArray = np.zeros(BLOCKS * PAGE, np.uint8)
    return host_pages(memory, Region(0, PAGE, PAGE), BLOCKS)


def places(count: int) -> ByteArray:
    return np.zeros((count, PAGE), np.uint8)


def test_pages_travel_to_the_host_and_back_to_other_pages(device: AnyDevice, pages: HostPages) -> None:
    pages[1], pages[3] = pattern(1, PAGE), pattern(3, PAGE)
    host = places(2)
    stream = device.new_stream()
    device.copy_to_host(stream, [PageCopy(pages, (3, 1), host)], SourceOrder.STREAM)
    device.copy_to_device(stream, [PageCopy(pages, (0, 2), host)], SourceOrder.STREAM)
    device.synchronize()
    assert np.array_equal(host[0], pattern(3, PAGE))
    assert np.array_equal(pages[0], pattern(3, PAGE))
    assert np.array_equal(pages[2], pattern(1, PAGE))


def test_an_event_is_done_after_the_work_before_it(device: AnyDevice, pages: HostPages) -> None:
    pages[0] = pattern(5, PAGE)
    host, end, stream = places(1), device.new_event(), device.new_stream()
    assert end.query()  # never recorded
    device.copy_to_host(stream, [PageCopy(pages, (0,), host)], SourceOrder.STREAM)
    stream.record(end)
    device.synchronize()
    assert end.query()
    assert np.array_equal(host[0], pattern(5, PAGE))


def test_a_stream_waits_for_the_record_that_an_event_stood_for(device: AnyDevice, pages: HostPages) -> None:
    pages[0] = pattern(5, PAGE)
    first, second = device.new_stream(), device.new_stream()
    host, event = places(1), device.new_event()
    device.copy_to_host(first, [PageCopy(pages, (0,), host)], SourceOrder.STREAM)
    first.record(event)
    second.wait(event)
    second.record(event)  # stands for something else now; the wait keeps its meaning
    device.copy_to_device(second, [PageCopy(pages, (1,), host)], SourceOrder.STREAM)
    device.synchronize()
    assert np.array_equal(pages[1], pattern(5, PAGE))


def test_copies_that_do_not_fit_are_refused_before_anything_moves(device: AnyDevice, pages: HostPages) -> None:
    stream = device.new_stream()
    with pytest.raises(LayoutMismatchError, match="no such engine block"):
        device.copy_to_host(stream, [PageCopy(pages, (BLOCKS,), places(1))], SourceOrder.STREAM)
    with pytest.raises(LayoutMismatchError, match="differ in size"):
        device.copy_to_device(stream, [PageCopy(pages, (0, 1), places(1))], SourceOrder.STREAM)


def test_streams_and_events_of_another_device_are_refused(device: AnyDevice, pages: HostPages) -> None:
    other = HostDevice(inline=True) if isinstance(device, SimDevice) else SimDevice(Random(1))
    with pytest.raises(UnsupportedOperationError, match="another device"):
        device.copy_to_host(other.new_stream(), [], SourceOrder.STREAM)
    with pytest.raises(UnsupportedOperationError, match="another device"):
        device.new_stream().wait(other.new_event())
    other.close()


def test_a_thread_of_the_host_holds_its_stream_until_the_event() -> None:
    pages = host_pages(np.zeros(2 * PAGE, np.uint8), Region(0, PAGE, PAGE), 2)
    pages[0] = pattern(1, PAGE)
    gate, host = threading.Event(), places(1)
    with HostDevice() as device:
        first, second = device.new_stream(), device.new_stream()
        first.submit(lambda: _wait(gate))  # type: ignore[attr-defined]
        opened, end = device.new_event(), device.new_event()
        first.record(opened)
        second.wait(opened)
        device.copy_to_host(second, [PageCopy(pages, (0,), host)], SourceOrder.STREAM)
        second.record(end)
        assert not end.query()
        assert not host.any()
        gate.set()
        device.compute_stream.wait(end)  # compute of the host is the caller: it blocks
        assert np.array_equal(host[0], pattern(1, PAGE))


def _wait(gate: threading.Event) -> None:
    assert gate.wait(10)


def test_the_host_reads_its_sources_in_stream_order_only() -> None:
    with HostDevice(inline=True) as device, pytest.raises(UnsupportedOperationError, match="in order"):
        device.copy_to_host(device.new_stream(), [], SourceOrder.ANY)


def test_regions_lie_within_the_memory_and_their_pages_apart() -> None:
    memory: ByteArray = np.zeros(100, np.uint8)
    memory[10:14] = 7
    assert host_pages(memory, Region(10, 30, 4), 3)[0].tolist() == [7] * 4
    with pytest.raises(LayoutMismatchError, match="leaves"):
        host_pages(memory, Region(40, 30, 4), 3)
    with pytest.raises(LayoutMismatchError, match="overlap"):
        host_pages(memory, Region(0, 3, 4), 3)


def test_the_simulated_device_is_adversarial_and_the_same_for_one_seed() -> None:
    def torn(seed: int, order: SourceOrder) -> bytes:
        """A copy that nothing orders behind the work which writes its source."""
        device = SimDevice(Random(seed))
        pages = host_pages(np.zeros(PAGE, np.uint8), Region(0, PAGE, PAGE), 1)
        host, written = places(1), device.new_event()
        compute, stream = device.compute_stream, device.new_stream()
        compute.submit([lambda at=at: pages[0].__setitem__(at, 1) for at in range(PAGE)])  # type: ignore[misc]
        compute.record(written)
        if order is SourceOrder.ANY:
            stream.wait(written)
        device.copy_to_host(stream, [PageCopy(pages, (0,), host)], order)
        device.synchronize()
        return host.tobytes()

    for order in SourceOrder:
        seen = [torn(seed, order) for seed in range(30)]
        assert seen == [torn(seed, order) for seed in range(30)]
        assert any(0 in copied and 1 in copied for copied in seen), order
