"""The bounded queue of work by priority."""

import pytest

from blockyard.core.errors import ConfigurationError, KernelError
from blockyard.core.work_queue import QueueLimits, WorkQueue

Queue = WorkQueue[str, str, str]


def queue(entries: int = 8, size_bytes: int = 0) -> Queue:
    return WorkQueue(QueueLimits(entries, size_bytes))


def put(waiting: Queue, *names: str, lane: str = "lane", priority: int = 0, size_bytes: int = 0) -> list[str]:
    dropped: list[str] = []
    for name in names:
        dropped += waiting.put(name, name, lane=lane, priority=priority, size_bytes=size_bytes)
    return dropped


def test_urgent_work_leaves_first_and_equals_in_order_of_arrival() -> None:
    waiting = queue()
    put(waiting, "a", "b", priority=1)
    put(waiting, "c", priority=3)
    put(waiting, "d", priority=1)
    assert waiting.take(2) == ["c", "a"]
    assert waiting.take(9) == ["b", "d"]
    assert waiting.take(9) == []


def test_a_batch_is_of_the_lane_of_the_most_urgent_entry() -> None:
    waiting = queue()
    put(waiting, "a", "b", lane="x")
    put(waiting, "c", lane="y", priority=1)
    put(waiting, "d", lane="y", priority=-1)
    assert waiting.take(9) == ["c", "d"]
    assert waiting.take(9) == ["a", "b"]


def test_lanes_without_room_are_passed_over_and_keep_their_entries() -> None:
    waiting = queue()
    put(waiting, "a", "b", lane="blocked")
    put(waiting, "c", "d", "e", lane="open")
    assert waiting.take(9, room_of=lambda lane: 2 if lane == "open" else 0) == ["c", "d"]
    assert waiting.take(9) == ["a", "b"]


def test_entries_below_the_least_priority_stay() -> None:
    waiting = queue()
    put(waiting, "store", priority=-1)
    assert waiting.take(9, least_priority=0) == []
    put(waiting, "load", priority=0)
    assert waiting.take(9, least_priority=0) == ["load"]
    assert waiting.take(9) == ["store"]


def test_a_full_queue_drops_the_oldest_of_the_least_urgent() -> None:
    waiting = queue(2)
    put(waiting, "a", "b")
    assert put(waiting, "c") == ["a"]
    assert put(waiting, "d", priority=1) == ["b"]
    assert put(waiting, "e", priority=-1) == ["e"]
    assert waiting.take(9) == ["d", "c"]


def test_bytes_are_bounded_too() -> None:
    waiting = queue(8, 100)
    put(waiting, "a", "b", size_bytes=50)
    assert waiting.size_bytes == 100
    assert put(waiting, "c", size_bytes=60) == ["a", "b"]
    assert (len(waiting), waiting.size_bytes) == (1, 60)
    assert put(waiting, "d", size_bytes=101, priority=-1) == ["d"]


def test_an_entry_can_only_become_more_urgent() -> None:
    waiting = queue()
    put(waiting, "a", "b", "c")
    waiting.raise_to("c", 5)
    waiting.raise_to("c", 1)
    waiting.raise_to("unknown", 1)
    assert waiting.take(9) == ["c", "a", "b"]


def test_a_withdrawn_entry_is_never_taken_and_its_name_is_free_again() -> None:
    waiting = queue()
    put(waiting, "a", "b")
    assert waiting.withdraw("a") == "a"
    assert waiting.withdraw("a") is None
    assert "a" not in waiting
    put(waiting, "a")
    assert waiting.take(9) == ["b", "a"]


def test_a_name_is_queued_once() -> None:
    waiting = queue()
    put(waiting, "a")
    with pytest.raises(KernelError):
        put(waiting, "a")
    assert waiting.all_work() == ["a"]


def test_a_queue_without_room_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        queue(0)
