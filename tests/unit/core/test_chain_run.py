"""Runs of a chain: parents, positions and slices follow from the first block."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import RequestError
from blockyard.core.vocabulary import ROOT_KEY, ContentKey, key_of


def chain(length: int) -> ChainRun:
    return ChainRun(b"".join(hashlib.sha256(bytes([index])).digest() for index in range(length)))


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_slice_is_the_run_of_its_blocks(length: int, start: int, stop: int) -> None:
    run = chain(length)
    part = run.slice(start, stop)
    assert part.keys() == run.keys()[start:stop]
    assert part.first_position == min(start, length)
    assert part.parent == run.parent_of(min(start, length))
    if len(part):
        assert list(part) == [part.key(index) for index in range(len(part))]


def test_an_empty_slice_stands_between_its_neighbours() -> None:
    run = chain(5).slice(1, 4)
    assert run.slice(2, 2) == ChainRun(b"", 3, run.key(1))
    assert run.slice(9, 9) == run.slice(3, 3) == ChainRun(b"", 4, run.key(2))


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, -1)])
def test_slices_do_not_count_from_the_end(start: int, stop: int) -> None:
    with pytest.raises(RequestError):
        chain(3).slice(start, stop)


def test_the_first_block_has_the_root_as_parent() -> None:
    run = chain(3)
    assert run.parent_of(0) == ROOT_KEY
    assert run.parent_of(2) == run.key(1) == key_of(run.digest(1))


@pytest.mark.parametrize(
    ("digests", "position", "parent"),
    [
        (b"x" * 33, 0, ROOT_KEY),
        (b"x" * 32, 0, b"p" * 16),
        (b"x" * 32, 1, ROOT_KEY),
        (b"x" * 32, -1, b"p" * 16),
        (b"", 1, b"short"),
    ],
)
def test_columns_that_are_no_run_are_refused(digests: bytes, position: int, parent: bytes) -> None:
    with pytest.raises(RequestError):
        ChainRun(digests, position, ContentKey(parent))
