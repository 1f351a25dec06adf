"""What is remembered of blocks that left: bounded, the oldest lost first."""

from blockyard.core.eviction.block_history import BlockHistory
from blockyard.core.stored_key import StoredKey


def names(*numbers: int) -> list[StoredKey]:
    return [StoredKey(number.to_bytes(16, "little")) for number in numbers]


def test_a_memory_is_given_once() -> None:
    history = BlockHistory(4)
    history.add(names(1, 2), [10, 2**64 - 1])
    assert [history.recall(name) for name in names(2, 1, 1, 3)] == [2**64 - 1, 10, None, None]
    assert len(history) == 0


def test_the_oldest_memory_is_lost_first() -> None:
    history = BlockHistory(3)
    history.add(names(1, 2), [1, 2])
    history.add(names(3, 4), [3, 4])
    assert len(history) == 3
    assert [history.recall(name) for name in names(1, 2, 3, 4)] == [None, 2, 3, 4]


def test_a_block_that_left_again_is_remembered_as_of_then() -> None:
    history = BlockHistory(3)
    history.add(names(1, 2), [1, 2])
    history.add(names(1), [7])
    history.add(names(3, 4), [3, 4])
    assert [history.recall(name) for name in names(2, 1, 3, 4)] == [None, 7, 3, 4]


def test_memories_that_were_given_leave_room_for_others_and_take_no_space() -> None:
    history = BlockHistory(8)
    history.add(names(0), [0])
    for number in range(1, 5_000):
        history.add(names(number), [number])
        assert history.recall(names(number)[0]) == number
    assert len(history._queue) <= 16
    history.add(names(*range(6_000, 6_007)), range(7))
    assert len(history) == 8
    assert history.recall(names(0)[0]) == 0
    assert [history.recall(name) for name in names(*range(6_000, 6_007))] == list(range(7))
