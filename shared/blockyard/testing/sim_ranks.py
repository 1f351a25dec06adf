"""Tensor-parallel ranks of a small engine on simulated devices; their blocks hold what the byte oracle says.

A rank does the plans of the scheduler in order: it submits kernels, which write blocks and read them as attention does,
and, where ranks copy, has ``EngineCopies`` do what it does in a real engine. Every word that compute reads is compared
with the oracle.
Invariants: everything follows from the seed. Threading: one thread.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha256
from random import Random
from typing import Final, TypeAlias, final

import numpy as np

from blockyard.connectors.rank_copies import RankLayout, RowCopy
from blockyard.connectors.vllm.engine_copies import EngineCopies
from blockyard.connectors.vllm.step_plan import NO_COPIES, CopyOrder, CopyPlan, StepReport
from blockyard.core.kv_groups import KvGroup, Region
from blockyard.core.vocabulary import EngineBlockId, ItemStatus
from blockyard.testing.byte_patterns import pattern
from blockyard.testing.sim_device import Piece, SimDevice, SimEvent
from blockyard.testing.sim_scheduler import (
    BLOCK_TOKENS,
    ROW_PAGES,
    ROW_TOKENS,
    Chunk,
    Fill,
    Plan,
    RowMove,
)
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.device.fences import Fences
from blockyard.tiers.device.host import HostPages, host_pages

REGIONS: Final = 2
WORD_BYTES: Final = 8
PAGE_BYTES: Final = BLOCK_TOKENS * WORD_BYTES
SHARD_BYTES: Final = PAGE_BYTES * REGIONS * ROW_PAGES
Move: TypeAlias = RowMove | Fill


@lru_cache(maxsize=65_536)
def oracle_word(tokens: bytes, rank: int, region: int) -> ByteArray:
    """What a rank holds in one region for the last of these tokens."""
    seed = int.from_bytes(sha256(bytes((rank, region)) + tokens).digest()[:4], "little")
    word = pattern(seed, WORD_BYTES)
    word.flags.writeable = False
    return word


def oracle_row(tokens: bytes, ranks: int) -> bytes:
    """Payload of the row that ends with these tokens (order: ``core.kv_groups``)."""
    first = len(tokens) - ROW_TOKENS
    return b"".join(
        oracle_word(tokens[: first + block * BLOCK_TOKENS + token + 1], rank, region).tobytes()
        for rank in range(ranks)
        for block in range(ROW_PAGES)
        for region in range(REGIONS)
        for token in range(BLOCK_TOKENS)
    )


@dataclass(slots=True)
class Findings:
    """What a run did and found."""

    reads: int = 0
    wrong_reads: int = 0
    """Words of another content than the oracle's that compute has read."""
    stored: int = 0
    wrong_slots: int = 0
    """Published slots with other bytes than the oracle's."""
    loaded: int = 0
    sibling_loads: int = 0

    @property
    def wrong(self) -> int:
        """Both."""
        return self.wrong_reads + self.wrong_slots


@final
class SimRank:
    """One rank: its memory, its device and the plans it has not got to yet."""

    def __init__(
        self, rank: int, ranks: int, blocks: int, arena: Arena, fences: Fences, random: Random, findings: Findings
    ) -> None:
        """Begin with empty pages."""
        self.rank: Final = rank
        self._random = random
        self._fences = fences
        self._findings = findings
        memory: ByteArray = np.zeros(blocks * PAGE_BYTES * REGIONS, np.uint8)
        self.pages: Final[tuple[HostPages, ...]] = tuple(
            host_pages(memory, Region(region * blocks * PAGE_BYTES, PAGE_BYTES, PAGE_BYTES), blocks)
            for region in range(REGIONS)
        )
        self.device: Final = SimDevice(random)
        self.worker: Final = self.device.new_stream()
        self._sibling = self.device.new_stream()
        self._group = KvGroup(engine_block_tokens=BLOCK_TOKENS)
        layout = RankLayout(rank, ranks, ROW_TOKENS, (self._group,), (self.pages,))
        self.copies: Final = EngineCopies(layout, lambda: self.device, fences)
        self.copies.take_arena(arena)
        asyncio.run(self.copies.drained())
        self.copies.attached(True)
        self.plans: list[Plan] = []
        self.steps_done: list[SimEvent] = []
        self._orders = 0
        self._under_way: dict[int, Sequence[Move]] = {}
        self._sibling_ends: list[tuple[SimEvent, Fill]] = []

    def run_plan(self, *, copies: bool) -> None:
        """Submit the next step: what must wait for stores, loads before or behind the kernels, the stores."""
        plan = self.plans.pop(0)
        orders = self._copy_plan(plan) if copies else NO_COPIES
        compute = self.device.compute_stream
        self.copies.step_begins(orders)
        for fill in plan.sibling_loads:
            self._load_by_sibling(fill)
        loads_first = self._random.random() < 0.5
        if loads_first:
            self.copies.loads_begin(orders)
        compute.submit(self._kernels(plan.chunks))
        done = self.device.new_event()  # the engine's own: its output
        compute.record(done)
        self.steps_done.append(done)
        if not loads_first:
            self.copies.loads_begin(orders)
        self.copies.step_ended(orders)

    def poll(self) -> list[tuple[Move, bool]]:
        """Moves that this rank has ended, and whether they went well."""
        ended: list[tuple[Move, bool]] = []
        report = StepReport()
        self.copies.report(report)
        for order, ranks in report.copies.items():
            moves = self._under_way.pop(order)
            good = [status is ItemStatus.OK for status in ranks[self.rank]]
            if isinstance(moves[0], Fill):
                ended.append((moves[0], all(good)))
            else:
                ended += zip(moves, good, strict=True)
        for event, fill in [pair for pair in self._sibling_ends if pair[0].query()]:
            self._sibling_ends.remove((event, fill))
            ended.append((fill, True))
        return ended

    # --- work ---------------------------------------------------------------------------------------------------------
    def _copy_plan(self, plan: Plan) -> CopyPlan:
        """What the scheduler half tells a rank of the plan."""
        loads = [self._order((fill,), [row.copy for row in fill.rows]) for fill in plan.loads]
        stores = [self._order(plan.stores, [move.copy for move in plan.stores])] if plan.stores else []
        return CopyPlan(
            attachments=(1,) * (self.rank + 1),
            ours=plan.ours,
            others=plan.others,
            stores=tuple(stores),
            loads=tuple(loads),
        )

    def _order(self, moves: Sequence[Move], rows: Sequence[RowCopy]) -> CopyOrder:
        self._orders += 1
        self._under_way[self._orders] = moves
        return CopyOrder(self._orders, tuple(rows))

    def _load_by_sibling(self, fill: Fill) -> None:
        """Another connector, which keeps its own streams behind compute and knows nothing of ours."""
        behind, end = self.device.new_event(), self.device.new_event()
        self.device.compute_stream.record(behind)
        self._sibling.wait(behind)
        self._sibling.submit(self._writes(fill.request.tokens, fill.table, fill.start, fill.stop))
        self._sibling.record(end)
        self._sibling_ends.append((end, fill))

    def _kernels(self, chunks: Sequence[Chunk]) -> list[Piece]:
        """All writes of the step, then all reads: what one layer after the other guarantees."""
        writes: list[Piece] = []
        reads: list[Piece] = []
        for chunk in chunks:
            tokens = chunk.request.tokens
            writes += self._writes(tokens, chunk.table, chunk.start, chunk.stop)
            reads += [partial(self._read, tokens, chunk.table, at) for at in range(chunk.stop)]
        self._random.shuffle(writes)
        self._random.shuffle(reads)
        return [*writes, *reads]

    def _writes(self, tokens: bytes, table: tuple[EngineBlockId, ...], start: int, stop: int) -> list[Piece]:
        return [
            partial(self._write, tokens, table, at, region) for at in range(start, stop) for region in range(REGIONS)
        ]

    def _write(self, tokens: bytes, table: tuple[EngineBlockId, ...], at: int, region: int) -> None:
        self._word(table, at, region)[:] = oracle_word(tokens[: at + 1], self.rank, region)

    def _read(self, tokens: bytes, table: tuple[EngineBlockId, ...], at: int) -> None:
        for region in range(REGIONS):
            self._findings.reads += 1
            expected = oracle_word(tokens[: at + 1], self.rank, region)
            if not np.array_equal(self._word(table, at, region), expected):
                self._findings.wrong_reads += 1

    def _word(self, table: tuple[EngineBlockId, ...], at: int, region: int) -> ByteArray:
        place = at % BLOCK_TOKENS * WORD_BYTES
        return self.pages[region][table[at // BLOCK_TOKENS], place : place + WORD_BYTES]
