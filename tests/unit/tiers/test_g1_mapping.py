"""Mapped engine memory and its guards."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from blockyard.core.errors import LayoutMismatchError
from blockyard.tiers.g1_mapping import G1Mapping


@dataclass
class Engine:
    kv: int
    guards: int


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(os.memfd_create("kv"), os.memfd_create("guards"))
    os.ftruncate(engine.kv, 9 * 6000 + 5000)
    os.ftruncate(engine.guards, 80)
    yield engine
    os.close(engine.kv)
    os.close(engine.guards)


def test_blocks_lie_at_their_strides_and_both_sides_see_writes(engine: Engine) -> None:
    with G1Mapping(engine.kv, engine.guards, 10, 5000, 6000) as mapping:
        mapping.block(9)[:] = 7
        assert os.pread(engine.kv, 5000, 9 * 6000) == b"\7" * 5000
        os.pwrite(engine.kv, b"\5", 6000)
        assert mapping.block(1)[0] == 5


def test_a_guard_is_what_the_engine_wrote_last(engine: Engine) -> None:
    with G1Mapping(engine.kv, engine.guards, 10, 5000, 6000) as mapping:
        assert mapping.guard(3) == 0
        os.pwrite(engine.guards, (1 << 63 | 5).to_bytes(8, "little"), 24)
        assert mapping.guard(3) == 1 << 63 | 5


def test_the_mapping_stays_when_the_descriptors_go(engine: Engine) -> None:
    kv, guards = os.dup(engine.kv), os.dup(engine.guards)
    mapping = G1Mapping(kv, guards, 10, 5000, 6000)
    os.close(kv)
    os.close(guards)
    assert len(mapping.block(0)) == mapping.block_bytes
    mapping.close()
    mapping.close()


@pytest.mark.parametrize("sizes", [(11, 5000, 6000), (10, 5001, 6000), (10, 5000, 4999), (0, 1, 1), (10, 0, 1)])
def test_sizes_that_do_not_fit_are_refused(engine: Engine, sizes: tuple[int, int, int]) -> None:
    with pytest.raises(LayoutMismatchError):
        G1Mapping(engine.kv, engine.guards, *sizes)


def test_a_descriptor_that_cannot_be_mapped_is_refused(engine: Engine) -> None:
    ends = os.pipe()
    try:
        with pytest.raises(LayoutMismatchError):
            G1Mapping(ends[0], engine.guards, 1, 1, 1)
    finally:
        for fd in ends:
            os.close(fd)
