"""Engine memory: shared pages and guard words."""

import mmap
import os

import numpy as np
import pytest

from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.errors import LayoutMismatchError
from blockyard.core.vocabulary import EngineBlockId, Guard


def test_another_mapping_of_the_descriptor_sees_the_bytes_and_guards() -> None:
    with EngineMemory(4, 4_096) as memory:
        memory.view(EngineBlockId(2))[:] = 7
        memory.raise_guards([EngineBlockId(2)])
        memory.raise_guards([EngineBlockId(1), EngineBlockId(2)])
        with mmap.mmap(memory.rank.fd, 0) as kv, mmap.mmap(memory.guards.fd, 0) as guards:
            assert kv[2 * 4_096 : 3 * 4_096] == b"\x07" * 4_096
            assert np.frombuffer(guards[:32], np.uint64).tolist() == [0, 1, 2, 0]
        assert memory.guard(EngineBlockId(2)) == Guard(2)


@pytest.mark.parametrize(("blocks", "block_bytes"), [(0, 4_096), (4, 4_095), (4, 0)])
def test_a_layout_that_is_no_whole_pages_is_refused(blocks: int, block_bytes: int) -> None:
    with pytest.raises(LayoutMismatchError, match="block_bytes"):
        EngineMemory(blocks, block_bytes)


def test_closing_releases_the_descriptors() -> None:
    memory = EngineMemory(1, 4_096)
    memory.close()
    for descriptor in (memory.rank.fd, memory.guards.fd):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_nobody_can_shrink_memory_that_a_node_maps() -> None:
    with EngineMemory(1, 4_096) as memory:
        for descriptor in (memory.rank.fd, memory.guards.fd):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, 0)
