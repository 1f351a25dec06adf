"""Mapped engine memory and its guards."""

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from blockyard.core.errors import LayoutMismatchError, UnsealedMemoryError
from blockyard.tiers.g1_mapping import G1Mapping


@dataclass
class Engine:
    kv: int
    guards: int


def memory_file(size: int, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    fd = os.memfd_create("memory of a test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(memory_file(9 * 6000 + 5000), memory_file(80))
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


@pytest.mark.parametrize("loose", ["kv", "guards"])
def test_memory_that_can_shrink_is_refused(engine: Engine, loose: str) -> None:
    """After a cut, the next access to it would kill the worker with SIGBUS."""
    sizes = {"kv": 9 * 6000 + 5000, "guards": 80}
    fd = memory_file(sizes[loose], fcntl.F_SEAL_GROW)
    fds = {"kv": engine.kv, "guards": engine.guards, loose: fd}
    try:
        with pytest.raises(UnsealedMemoryError, match="F_SEAL_SHRINK"):
            G1Mapping(fds["kv"], fds["guards"], 10, 5000, 6000)
    finally:
        os.close(fd)


def test_a_plain_file_cannot_be_sealed_and_is_refused(engine: Engine, tmp_path: Path) -> None:
    with (tmp_path / "memory").open("w+b") as file:
        file.truncate(1 << 20)
        with pytest.raises(UnsealedMemoryError):
            G1Mapping(file.fileno(), engine.guards, 10, 5000, 6000)


def test_memory_that_must_not_be_written_is_refused(engine: Engine) -> None:
    sealed = memory_file(9 * 6000 + 5000, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)
    try:
        with pytest.raises(LayoutMismatchError, match="cannot map"):
            G1Mapping(sealed, engine.guards, 10, 5000, 6000)
    finally:
        os.close(sealed)
