"""Ranks that write the arena themselves, and the engine that orders their copies, as processes.

A rank has copies under way that go on through everything but its death; it attaches anew only when they have ended.
Threading: one thread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from blockyard.core.arena_writers import RankId, RankProcess
from blockyard.core.store_grants import GrantedSlots
from blockyard.core.vocabulary import BlockId, EngineId, Generation
from blockyard.testing.sim.ports import StreamPort
from blockyard.testing.sim.world import Process

if TYPE_CHECKING:
    from blockyard.testing.sim.grants import GrantWorld

TICK_SECONDS: Final = 0.25
RESTART_SECONDS: Final = 1.0
_COPY_SECONDS: Final = 0.3


@dataclass(slots=True, eq=False)
class Copy:
    """One shard of one slot under way."""

    arena: int
    epoch: int
    slot: BlockId
    generation: Generation


class SimRank(Process):
    """Lives of one rank process."""

    def __init__(self, node: "GrantWorld", rank: RankId) -> None:
        """Prepare."""
        super().__init__(node.world, f"{rank.engine}-{rank.rank}")
        self.node: Final = node
        self.rank: Final = rank
        self.facts: RankProcess
        self.copies: list[Copy] = []
        self.stream: StreamPort
        self.attached = False
        self.attaches = 0
        """How often it was answered attach, over all lives."""
        self._arena = 0

    def started(self) -> None:
        """Another process with empty hands."""
        self.facts = RankProcess(self.rank, 1_000 + self.life, self.life, "boot", 1)
        self.attached = False
        self.stream = StreamPort(self.world)
        self.stream.close()
        self._connect()

    def died(self) -> None:
        """Its copies end with it; the kernel closes its socket, and some time later the death is proven."""
        self.copies.clear()
        self.attached = False
        self.stream.close()
        manager, facts = self.node.manager, self.facts
        self.world.after(0.001, lambda: manager.run(partial(manager.rank_gone, facts)))
        self.world.after(
            self.world.random.uniform(0.002, 0.5), lambda: manager.run(partial(manager.proven_dead, facts))
        )
        self.world.after(self.world.random.uniform(0.01, RESTART_SECONDS), self.start)

    def _connect(self) -> None:
        """Attach once nothing is under way; looked at again and again."""
        if not self.stream.open:
            self.attached = False
        if not self.attached and not self.copies and self.node.manager.alive:
            self.stream.close()
            self.stream = stream = StreamPort(self.world)
            manager, facts = self.node.manager, self.facts
            stream.send(manager, lambda: manager.attach(self, facts, stream))
        self.after(TICK_SECONDS, self._connect)

    def welcome(self, arena: int) -> None:
        """The block-manager has answered attach."""
        self.attached, self._arena = True, arena
        self.attaches += 1

    def write(self, attaches: int, epoch: int, slot: BlockId, generation: Generation, done: Callable[[], None]) -> None:
        """The engine orders a copy, under a grant of this attachment; orders of an earlier one are void."""
        if not self.attached or not self.stream.open or attaches != self.attaches:
            return
        copy = Copy(self._arena, epoch, slot, generation)
        self.copies.append(copy)
        self.after(self.world.random.uniform(0.0, _COPY_SECONDS), partial(self._land, copy, done))

    def _land(self, copy: Copy, done: Callable[[], None]) -> None:
        self.copies.remove(copy)
        self.node.landed(copy)
        done()


class SimScheduler(Process):
    """The engine of some ranks: it reserves, orders copies, commits and aborts."""

    def __init__(self, node: "GrantWorld", engine: EngineId, ranks: list[SimRank]) -> None:
        """Prepare."""
        super().__init__(node.world, engine)
        self.node: Final = node
        self.engine: Final = engine
        self.ranks: Final = ranks
        self.active = True

    def started(self) -> None:
        """Work from now on."""
        self.after(TICK_SECONDS, self._act)

    def died(self) -> None:
        """Its session is over."""
        manager = self.node.manager
        self.world.after(0.001, lambda: manager.run(partial(manager.lose, self.engine)))
        self.world.after(self.world.random.uniform(0.01, RESTART_SECONDS), self.start)

    def _act(self) -> None:
        manager = self.node.manager
        if self.active:
            manager_life = manager.life
            count = self.world.random.randint(1, 2)
            self._later(manager, lambda: manager.reserve(self, count) if manager.life == manager_life else None)
        self.after(self.world.random.uniform(0.0, 2 * TICK_SECONDS), self._act)

    def _later(self, process: Process, section: Callable[[], None]) -> None:
        self.world.after(self.world.random.uniform(0.0, 0.02), lambda: process.run(section))

    def granted(self, granted: GrantedSlots, epoch: int, attaches: list[int]) -> None:
        """Have every rank write its shard of every slot."""
        for slot, generation in zip(granted.slots, granted.generations, strict=True):
            for rank, attached in zip(self.ranks, attaches, strict=True):
                done = partial(self._written, granted, slot, rank.rank.rank, epoch)
                self._later(rank, partial(rank.write, attached, epoch, slot, generation, done))

    def _written(self, granted: GrantedSlots, slot: BlockId, rank: int, epoch: int) -> None:
        manager = self.node.manager
        self._later(manager, lambda: manager.commit(self, granted, slot, 1 << rank, epoch))
