"""A small engine whose rows are stored and loaded while it computes, in adversarial order: the proof of the fences.

Two executors move rows between pages and the arena: the ranks themselves, on streams (``engine``), or a worker that no
stream orders and that compares guards before and after (``mapped``). Every slot that is published is compared with the
byte oracle, as is all that compute reads.
Invariants: everything follows from the seed. Threading: one thread.
"""

from collections.abc import Iterator
from random import Random
from types import TracebackType
from typing import Final, Self, final

import numpy as np

from blockyard.connectors.rank_copies import RowCopy
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import Executor
from blockyard.testing.byte_patterns import header_of
from blockyard.testing.sim_device import Piece
from blockyard.testing.sim_ranks import REGIONS, SHARD_BYTES, WORD_BYTES, Findings, Move, SimRank, oracle_row
from blockyard.testing.sim_scheduler import BLOCK_TOKENS, ROW_PAGES, Fill, RowMove, SimScheduler
from blockyard.tiers.arena import Arena
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.device.fences import Fences
from blockyard.tiers.device.rank_ends import RankEnds


@final
class MappedWorker:
    """A process that copies rows of one rank by guards alone; its stream waits for nothing."""

    def __init__(self, rank: SimRank, arena: Arena, guards: list[int], *, compares: bool) -> None:
        """Copy between ``rank`` and ``arena``; ``compares`` guards, or trusts in luck."""
        self._compares = compares
        self._rank = rank
        self._arena = arena
        self._guards = guards
        self._ended: list[tuple[Move, bool]] = []

    def store(self, move: RowMove) -> None:
        """Guard, copy, guard."""
        good: list[bool] = []

        def compare() -> None:
            good.append(self._fits(move))

        pieces = [_piece(host, page) for page, host in self._words(move.copy)]
        self._rank.worker.submit([compare, *pieces, compare, lambda: self._ended.append((move, all(good)))])

    def load(self, fill: Fill) -> None:
        """Guard, then write."""
        good: list[bool] = []

        def compare() -> None:
            good.append(all(self._fits(row) for row in fill.rows))

        pieces = [_piece(page, host) for row in fill.rows for page, host in self._words(row.copy)]
        self._rank.worker.submit([compare, *pieces, lambda: self._ended.append((fill, all(good)))])

    def poll(self) -> list[tuple[Move, bool]]:
        """Moves that have ended, and whether the guards said so."""
        ended, self._ended = self._ended, []
        return ended

    def _fits(self, move: RowMove) -> bool:
        pairs = zip(move.copy.pages, move.guards, strict=True)
        return not self._compares or all(page == NO_PAGE or self._guards[page] == guard for page, guard in pairs)

    def _words(self, copy: RowCopy) -> Iterator[tuple[ByteArray, ByteArray]]:
        shard = self._arena.payload(copy.slot)[self._rank.rank * SHARD_BYTES :][:SHARD_BYTES]
        parts = shard.reshape(ROW_PAGES, REGIONS, BLOCK_TOKENS, WORD_BYTES)
        for place, block in enumerate(copy.pages):
            if block != NO_PAGE:
                for region in range(REGIONS):
                    page = self._rank.pages[region][block].reshape(BLOCK_TOKENS, WORD_BYTES)
                    yield from zip(page, parts[place, region], strict=True)


def _piece(target: ByteArray, source: ByteArray) -> Piece:
    return lambda: np.copyto(target, source)


@final
class SimEngine:
    """Scheduler, ranks, and the part of the node; close it."""

    def __init__(
        self,
        seed: int,
        fences: Fences,
        executor: Executor,
        *,
        ranks: int = 2,
        blocks: int = 16,
        slots: int = 6,
        compares_guards: bool = True,
    ) -> None:
        """Begin idle.

        Args:
            seed: everything follows from it.
            fences: what orders its copies.
            executor: ``engine`` or ``mapped``.
            ranks: tensor-parallel ranks.
            blocks: engine blocks; few, so that they are soon used again.
            slots: of the arena.
            compares_guards: whether the mapped worker does.
        """
        self.findings: Final = Findings()
        self._random = Random(seed)
        self._ranks_copy = executor is Executor.ENGINE
        self._arena = Arena.create(slots, SHARD_BYTES * ranks)
        self._scheduler = SimScheduler(self._random, fences, blocks=blocks, slots=slots)
        self._ranks = [
            SimRank(rank, ranks, blocks, self._arena, fences, self._random, self.findings) for rank in range(ranks)
        ]
        guards = self._scheduler.guards
        self._workers = [MappedWorker(rank, self._arena, guards, compares=compares_guards) for rank in self._ranks]
        self._ends: RankEnds[Move] = RankEnds(ranks, fences)
        self._failed: set[Move] = set()
        self._loads_to_come: list[Fill] = []

    def run(self, turns: int) -> Findings:
        """Do so many things in random order, then all that was begun."""
        doings = (self._schedule, self._submit, self._advance, self._process, self._poll, self._abort)
        for doing in self._random.choices(doings, (8, 10, 16, 8, 8, 1), k=turns):
            doing()
        while self._scheduler.in_flight or self._loads_to_come:
            self._finish()
        self._finish()
        return self.findings

    def close(self) -> None:
        """Give the arena back."""
        for rank in self._ranks:
            rank.copies.close()
        self._arena.close()

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    # --- doings -------------------------------------------------------------------------------------------------------
    def _schedule(self) -> None:
        plan = self._scheduler.schedule()
        if plan is not None:
            for rank in self._ranks:
                rank.plans.append(plan)
            if not self._ranks_copy:
                self._loads_to_come += plan.loads

    def _submit(self) -> None:
        rank = self._random.choice(self._ranks)
        if rank.plans:
            rank.run_plan(copies=self._ranks_copy)

    def _advance(self) -> None:
        self._random.choice(self._ranks).device.advance(self._random.randint(1, 40))

    def _process(self) -> None:
        if self._scheduler.in_flight and all(rank.steps_done and rank.steps_done[0].query() for rank in self._ranks):
            for rank in self._ranks:
                rank.steps_done.pop(0)
            plan = self._scheduler.processed()
            if not self._ranks_copy:
                for move in plan.stores:
                    self._arena.begin_write(move.copy.slot, move.copy.generation)
                    for worker in self._workers:
                        worker.store(move)

    def _poll(self) -> None:
        for fill in tuple(self._loads_to_come):
            if self._scheduler.freed.may_touch(page for row in fill.rows for page in row.copy.pages):
                self._loads_to_come.remove(fill)
                for worker in self._workers:
                    worker.load(fill)
        for index, rank in enumerate(self._ranks):
            for move, good in (*rank.poll(), *self._workers[index].poll()):
                self._part_ended(index, move, good=good)

    def _abort(self) -> None:
        self._scheduler.abort()

    def _finish(self) -> None:
        for rank in self._ranks:
            while rank.plans:
                rank.run_plan(copies=self._ranks_copy)
            rank.device.synchronize()
        self._process()
        self._poll()

    # --- ends ---------------------------------------------------------------------------------------------------------
    def _part_ended(self, rank: int, move: Move, *, good: bool) -> None:
        if not good:
            self._failed.add(move)
        if self._ends.ended(rank, move):
            if isinstance(move, RowMove):
                self._seal(move)
            else:
                self._scheduler.filled(move)
                self.findings.loaded += bool(move.rows)
                self.findings.sibling_loads += not move.rows

    def _seal(self, move: RowMove) -> None:
        """All shards are committed: the node hashes the slot and publishes it, whatever it holds."""
        is_stored = move not in self._failed
        if is_stored:
            copy = move.copy
            payload = self._arena.payload(copy.slot)
            header = header_of(0, payload, file_id=self._arena.arena_id, slot=copy.slot, generation=copy.generation)
            self._arena.publish(header)
            self.findings.stored += 1
            self.findings.wrong_slots += payload.tobytes() != oracle_row(move.tokens, len(self._ranks))
        self._scheduler.book.settle(move, is_stored=is_stored)
