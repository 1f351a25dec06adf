"""Memory of an engine that is one process with one KV group: whole blocks side by side, and their guards.

Built from what larger engines combine by themselves: guards (``EngineGuards``), the KV memory of a rank
(``RankMemory``) and a description. One engine block is one Blockyard block here, and one region holds them all.
Invariants: as ``EngineGuards``. Threading: one owner thread.
"""

import mmap
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Self, final

import numpy as np
import numpy.typing as npt

from blockyard.connectors.engine_description import EngineDescription
from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.rank_memory import RankMemory
from blockyard.connectors.sealed_memory import sealed_memory
from blockyard.core.errors import LayoutMismatchError
from blockyard.core.identity import ModelIdentity
from blockyard.core.kv_groups import KvGroup, Region
from blockyard.core.vocabulary import EngineBlockId, EngineId, Executor, Guard


@final
class EngineMemory:
    """KV memory of an engine with ``blocks`` blocks of ``block_bytes`` bytes."""

    def __init__(self, blocks: int, block_bytes: int) -> None:
        """Allocate zeroed memory.

        Raises:
            LayoutMismatchError: the block size is not a multiple of the page size, or there is no block.
        """
        if blocks < 1 or block_bytes < 1 or block_bytes % mmap.PAGESIZE:
            raise LayoutMismatchError(
                "blocks must be whole pages", blocks=blocks, block_bytes=block_bytes, page_bytes=mmap.PAGESIZE
            )
        self.blocks: Final = blocks
        self.block_bytes: Final = block_bytes
        self.guards: Final = EngineGuards(blocks)
        size = blocks * block_bytes
        self.rank: Final = RankMemory(
            sealed_memory("blockyard-g1-kv", size), size, ((Region(0, block_bytes, block_bytes),),)
        )
        self._kv = mmap.mmap(self.rank.fd, 0)
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(self._kv, np.uint8).reshape(blocks, block_bytes)

    def description(
        self, engine: EngineId, identity: ModelIdentity, *, dp_rank: int = 0, executor: Executor = Executor.MAPPED
    ) -> EngineDescription:
        """Description of an engine with this memory: its engine blocks are blocks, whatever ``identity`` says."""
        return EngineDescription(
            engine=engine,
            identity=replace(identity, engine_block_tokens=identity.block_tokens),
            dp_rank=dp_rank,
            blocks=self.blocks,
            groups=(KvGroup(engine_block_tokens=identity.block_tokens),),
            executor=executor,
        )

    def view(self, block: EngineBlockId) -> npt.NDArray[np.uint8]:
        """Writable bytes of one block."""
        row: npt.NDArray[np.uint8] = self._bytes[block]
        return row

    def raise_guards(self, blocks: Sequence[EngineBlockId]) -> None:
        """Declare that these blocks are about to be reused or freed."""
        self.guards.raise_guards(blocks)

    def guard(self, block: EngineBlockId) -> Guard:
        """Current guard word of one block."""
        return self.guards.guard(block)

    def close(self) -> None:
        """Unmap and close; the pages live on while the node maps them."""
        self._bytes = np.empty((0, 0), np.uint8)
        self._kv.close()
        os.close(self.rank.fd)
        self.guards.close()

    def __enter__(self) -> Self:
        """Use as a context manager."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()
