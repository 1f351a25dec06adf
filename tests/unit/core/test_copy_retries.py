"""Blocks whose copies were not made: a pause, a few turns, and no memory of what is gone."""

from blockyard.core.block_name import names_of
from blockyard.core.copy_retries import PAUSE_SECONDS, TRIES, CopyRetries
from blockyard.core.vocabulary import GroupId
from blockyard.testing.blocks import chain
from blockyard.testing.clock import FakeClock

BLOCKS = [(name.key, GroupId(0)) for name in names_of(chain("a", 4))]


def test_a_block_is_due_once_when_its_pause_is_over() -> None:
    clock = FakeClock()
    retries = CopyRetries(clock)
    retries.failed(BLOCKS[:2])
    clock.advance(PAUSE_SECONDS / 2)
    retries.failed(BLOCKS[2:])
    assert retries.due() == []
    clock.advance(PAUSE_SECONDS / 2)
    assert retries.due() == BLOCKS[:2]
    assert retries.due() == []
    assert retries.resting == BLOCKS[2:]


def test_a_block_that_fails_again_while_it_rests_rests_anew() -> None:
    clock = FakeClock()
    retries = CopyRetries(clock)
    retries.failed(BLOCKS[:2])
    clock.advance(PAUSE_SECONDS / 2)
    retries.failed(BLOCKS[:1])
    clock.advance(PAUSE_SECONDS / 2)
    assert retries.due() == BLOCKS[1:2]
    assert BLOCKS[0] in retries


def test_a_block_has_its_turns_and_starts_anew_once_it_was_forgotten() -> None:
    clock = FakeClock()
    retries = CopyRetries(clock)
    for _ in range(2):
        for _ in range(TRIES):
            retries.failed(BLOCKS[:1])
            clock.advance(PAUSE_SECONDS)
            assert retries.due() == BLOCKS[:1]
        retries.failed(BLOCKS[:1])
        assert retries.resting == []
    retries.failed(BLOCKS[:1])
    retries.forget(BLOCKS)
    assert retries.resting == []
    assert BLOCKS[0] not in retries
