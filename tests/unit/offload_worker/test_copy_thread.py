"""The copy thread: order of lanes, results, failures and the end."""

import asyncio
import threading
from collections.abc import Generator, Iterator

import pytest

from blockyard.core.errors import TransferError, UnavailableError
from blockyard.core.vocabulary import Lane
from blockyard_offload_worker.copy_thread import CopyThread


@pytest.fixture
def copies() -> Iterator[CopyThread]:
    with CopyThread() as thread:
        yield thread


def steps(name: str, count: int, seen: list[str]) -> Generator[None, None, str]:
    for _ in range(count):
        seen.append(name)
        yield
    return name


def gate(entered: threading.Event, go_on: threading.Event) -> Generator[None, None, None]:
    entered.set()
    go_on.wait(5)
    yield


async def test_the_result_of_the_work_is_returned(copies: CopyThread) -> None:
    assert await copies.run(Lane.STORE, steps("a", 3, [])) == "a"


async def test_a_load_that_arrives_later_goes_before_the_rest_of_a_store(copies: CopyThread) -> None:
    seen: list[str] = []
    entered, go_on = threading.Event(), threading.Event()
    first = asyncio.create_task(copies.run(Lane.STORE, gate(entered, go_on)))
    await asyncio.to_thread(entered.wait, 5)
    store = asyncio.create_task(copies.run(Lane.STORE, steps("store", 2, seen)))
    await asyncio.sleep(0)
    load = asyncio.create_task(copies.run(Lane.LOAD, steps("load", 2, seen)))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, store, load)
    assert seen == ["load", "load", "store", "store"]


async def test_works_of_one_lane_run_in_order_of_arrival(copies: CopyThread) -> None:
    seen: list[str] = []
    await asyncio.gather(*(copies.run(Lane.STORE, steps(name, 1, seen)) for name in "abc"))
    assert seen == ["a", "b", "c"]


async def test_a_failure_reaches_the_caller_and_the_thread_goes_on(copies: CopyThread) -> None:
    def failing() -> Generator[None, None, None]:
        yield
        raise TransferError("broken")

    with pytest.raises(TransferError):
        await copies.run(Lane.LOAD, failing())
    assert await copies.run(Lane.LOAD, steps("after", 1, [])) == "after"


async def test_work_of_a_cancelled_caller_still_runs_to_its_end(copies: CopyThread) -> None:
    entered, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> Generator[None, None, None]:
        yield from gate(entered, go_on)
        ended.set()

    caller = asyncio.create_task(copies.run(Lane.STORE, work()))
    await asyncio.to_thread(entered.wait, 5)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 5)


async def test_close_finishes_what_was_accepted_and_refuses_what_comes_later() -> None:
    copies = CopyThread()
    seen: list[str] = []
    accepted = asyncio.create_task(copies.run(Lane.STORE, steps("a", 2, seen)))
    await asyncio.sleep(0)
    await asyncio.to_thread(copies.close)
    assert await accepted == "a"
    with pytest.raises(UnavailableError):
        await copies.run(Lane.LOAD, steps("late", 1, seen))
    assert seen == ["a", "a"]
