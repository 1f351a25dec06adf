"""The bounded queue of work."""

import pytest

from blockyard.core.errors import ConfigurationError
from blockyard.core.job_queue import JobQueue
from blockyard.core.vocabulary import Lane


def test_loads_leave_before_stores_and_each_lane_in_order_of_arrival() -> None:
    queue: JobQueue[str] = JobQueue(8)
    for lane, name in [(Lane.STORE, "s1"), (Lane.LOAD, "l1"), (Lane.STORE, "s2"), (Lane.LOAD, "l2")]:
        assert queue.push(lane, name) is None

    assert [queue.pop() for _ in range(5)] == ["l1", "l2", "s1", "s2", None]


def test_entry_that_is_not_urgent_enough_stays() -> None:
    queue: JobQueue[str] = JobQueue(8)
    queue.push(Lane.STORE, "s1")
    assert queue.pop(Lane.LOAD) is None
    queue.push(Lane.LOAD, "l1")

    assert queue.pop(Lane.LOAD) == "l1"
    assert queue.pop(Lane.STORE) == "s1"


def test_full_queue_drops_its_oldest_store_and_counts_it() -> None:
    queue: JobQueue[str] = JobQueue(2)
    queue.push(Lane.STORE, "s1")
    queue.push(Lane.STORE, "s2")

    assert queue.full
    assert queue.push(Lane.STORE, "s3") == "s1"
    assert queue.push(Lane.LOAD, "l1") == "s2"
    assert queue.dropped == 2
    assert [queue.pop(), queue.pop()] == ["l1", "s3"]


def test_store_does_not_displace_a_load() -> None:
    queue: JobQueue[str] = JobQueue(1)
    queue.push(Lane.LOAD, "l1")

    assert queue.push(Lane.STORE, "s1") == "s1"
    assert queue.push(Lane.LOAD, "l2") == "l1"
    assert queue.dropped == 2
    assert len(queue) == 1


def test_removed_entries_are_returned_and_the_rest_keeps_its_order() -> None:
    queue: JobQueue[int] = JobQueue(8)
    for number in range(6):
        queue.push(Lane.STORE, number)

    assert queue.remove_if(lambda number: number % 2 == 0) == [0, 2, 4]
    assert [queue.pop() for _ in range(3)] == [1, 3, 5]
    assert queue.dropped == 0


def test_queue_without_room_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        JobQueue[int](0)
