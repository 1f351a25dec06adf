"""Guard words of an engine."""

import mmap
import os

import numpy as np
import pytest

from blockyard.connectors.engine_guards import EngineGuards
from blockyard.core.errors import LayoutMismatchError
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import EngineBlockId


def blocks(*numbers: int) -> list[EngineBlockId]:
    return [EngineBlockId(number) for number in numbers]


def test_raised_guards_are_seen_through_the_descriptor() -> None:
    with EngineGuards(5) as guards, mmap.mmap(guards.fd, 0) as seen:
        guards.raise_guards(blocks(1, 4))
        guards.raise_guards(blocks(4))
        guards.raise_guards([])
        assert np.frombuffer(seen[:40], np.uint64).tolist() == [0, 1, 0, 0, 2]
        guards.raise_all()
        assert guards.guards_of(blocks(0, 4)) == (1, 3)


@pytest.mark.parametrize("count", [1, 479, 480, 481, 1_500])
def test_any_number_of_guards_is_raised_and_read_at_once(count: int) -> None:
    with EngineGuards(2_000) as guards:
        numbers = np.random.default_rng(count).permutation(2_000)[:count]
        guards.raise_guards(numbers[: count // 2])
        raised = guards.raise_guards(numbers)
        assert raised.tolist() == [2] * (count // 2) + [1] * (count - count // 2)
        assert guards.values(numbers).tolist() == raised.tolist()
        others = np.setdiff1d(np.arange(2_000), numbers)
        assert not guards.values(others).any()


def test_a_block_named_twice_is_raised_once() -> None:
    with EngineGuards(5) as guards:
        assert guards.raise_guards(blocks(2, 2)).tolist() == [1, 1]


def test_a_block_named_far_apart_has_one_guard_for_both() -> None:
    with EngineGuards(2_000) as guards:
        raised = guards.raise_guards(np.array([7, *range(100, 1_500), 7]))
        assert raised[0] == raised[-1] == guards.guard(EngineBlockId(7))


def test_no_block_has_no_guard() -> None:
    with EngineGuards(5) as guards:
        guards.raise_all()
        assert guards.guards_of([NO_PAGE, EngineBlockId(0)]) == (0, 1)
        with pytest.raises(IndexError):
            guards.raise_guards([NO_PAGE])
        assert guards.guard(EngineBlockId(0)) == 1


def test_an_engine_without_blocks_is_refused() -> None:
    with pytest.raises(LayoutMismatchError, match="blocks=0"):
        EngineGuards(0)


def test_guards_cannot_shrink_and_go_with_their_owner() -> None:
    guards = EngineGuards(5)
    with pytest.raises(PermissionError):
        os.ftruncate(guards.fd, 0)
    guards.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(guards.fd)


def test_closing_twice_closes_nobody_elses_descriptor() -> None:
    guards = EngineGuards(5)
    guards.close()
    others = os.open(os.devnull, os.O_RDONLY)
    assert others == guards.fd, "the lowest free number is given again"
    guards.close()
    os.close(others)
