"""The block-manager that grants slots of the arena to ranks, and everything around it, driven by one seed.

A frozen rank goes on at any moment, so the slots that it may write wait, until patience ends and the arena is replaced.
Threading: one thread.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Final

from blockyard.core.arena_writers import ArenaWriters, AttachmentId, RankId, RankProcess
from blockyard.core.errors import IntegrityError, RequestError
from blockyard.core.pool import BlockPool
from blockyard.core.store_grants import GrantedSlots, StoreGrants
from blockyard.core.vocabulary import BlockId, EngineId, Generation, Tier
from blockyard.testing.blocks import chain, clear, columns, make_pool
from blockyard.testing.sim.fault_plan import plan_pair
from blockyard.testing.sim.ports import StreamPort
from blockyard.testing.sim.ranks import RESTART_SECONDS, TICK_SECONDS, Copy, SimRank, SimScheduler
from blockyard.testing.sim.world import Process, SimWorld
from blockyard.testing.sim.write_oracle import BrokenRuleError, WriteOracle

SLOTS: Final = 6
RANKS: Final = 2
FULL_MASK: Final = 0b11
STORM_SECONDS: Final = 6.0
STORM_STEPS: Final = 400
FREEZE_SECONDS: Final = 3.0
PATIENCE_SECONDS: Final = 1.5


@dataclass(frozen=True, slots=True)
class GrantMutant:
    """A block-manager that breaks a rule on purpose."""

    quarantines: bool = True
    waits_for_inherited: bool = True
    replaces_arena: bool = True
    hears_of_deaths: bool = True


UNCHANGED: Final = GrantMutant()


@dataclass(slots=True)
class _Tables:
    """What one life of the block-manager knows."""

    pool: BlockPool
    writers: ArenaWriters
    grants: StoreGrants = field(default_factory=StoreGrants)
    streams: dict[AttachmentId, StreamPort] = field(default_factory=dict)


class SimGranter(Process):
    """Lives of the block-manager, as far as it grants."""

    def __init__(self, node: "GrantWorld", mutant: GrantMutant) -> None:
        """Prepare."""
        super().__init__(node.world, "block-manager")
        self.node: Final = node
        self.tables: _Tables
        self._mutant = mutant
        self._records: set[RankProcess] = set()
        """Durable: processes that have the arena."""

    # --- lives --------------------------------------------------------------------------------------------------------
    def started(self) -> None:
        """Headers and records are all that is left of earlier lives."""
        writers = ArenaWriters(self.world.clock, patience_seconds=PATIENCE_SECONDS)
        self.tables = _Tables(make_pool(SLOTS), writers)
        for slot, generation in self.node.headers.items():
            self.tables.pool.set_generation(slot, generation)
        for process in sorted(self._records):
            self.tables.writers.inherit(process)
            if process not in [rank.facts for rank in self.node.ranks if rank.alive]:
                self.proven_dead(process)
        self.after(TICK_SECONDS, self._tick)

    def died(self) -> None:
        """Connections end."""
        self.tables.grants.close()
        for rank in self.node.ranks:
            rank.stream.close()
        self.world.after(self.world.random.uniform(0.01, RESTART_SECONDS), self.start)

    # --- ranks --------------------------------------------------------------------------------------------------------
    def attach(self, rank: SimRank, process: RankProcess, stream: StreamPort) -> None:
        """A rank has the arena from now on."""
        if any(
            writer.process == process and writer.attachment in self.tables.streams for writer in self.tables.writers
        ):
            self.lose(process.rank.engine)
        self._records.add(process)
        attachment, ended = self.tables.writers.attach(process)
        self.tables.streams[attachment] = stream
        self.tables.grants.ended(writer.attachment for writer in ended)
        arena = self.node.arena
        stream.send(rank, lambda: rank.welcome(arena))

    def rank_gone(self, process: RankProcess) -> None:
        """The connection of a rank has ended."""
        known = [w for w in self.tables.writers if w.process == process and w.attachment in self.tables.streams]
        if known:
            self.lose(process.rank.engine)
        for writer in known:
            self._detach(writer.attachment)

    def lose(self, engine: EngineId) -> None:
        """The session of an engine or one of its ranks is gone: what its ranks may write waits for them."""
        waits_for = [writer.attachment for writer in self.tables.writers.of(engine, 0)]
        self.tables.grants.end(engine, waits_for if self._mutant.quarantines else [])
        for attachment in waits_for:
            if attachment in self.tables.grants.awaited:
                self._detach(attachment)

    def _detach(self, attachment: AttachmentId) -> None:
        stream = self.tables.streams.pop(attachment, None)
        if stream is not None:
            stream.close()
            self.tables.writers.detach(attachment)
            writer = self.tables.writers.find(attachment)
            if writer is not None and attachment not in self.tables.grants.awaited:
                self.tables.writers.end(attachment)
                self._forget(writer.process)

    def proven_dead(self, process: RankProcess) -> None:
        """A process certainly writes nothing any more."""
        ended = [writer.attachment for writer in self.tables.writers if writer.process == process]
        for attachment in ended:
            self.tables.writers.end(attachment)
        if self._mutant.hears_of_deaths:
            self.tables.grants.ended(ended)
        self._forget(process)

    def _forget(self, process: RankProcess) -> None:
        if process not in {writer.process for writer in self.tables.writers}:
            self._records.discard(process)

    def _tick(self) -> None:
        overdue = self.tables.writers.overdue(self.tables.grants.awaited)
        if overdue and self._mutant.replaces_arena:
            self._replace_arena()
        elif overdue:
            for writer in overdue:
                self.tables.writers.end(writer.attachment)
            self.tables.grants.ended(writer.attachment for writer in overdue)
        self.after(TICK_SECONDS, self._tick)

    def _replace_arena(self) -> None:
        self.node.replace_arena()
        ended = self.tables.writers.arena_replaced()
        self.tables.grants.close()
        clear(self.tables.pool).doomed.release()
        for writer in ended:
            stream = self.tables.streams.pop(writer.attachment, None)
            if stream is not None:
                stream.close()
        self._records.clear()

    # --- grants -------------------------------------------------------------------------------------------------------
    def reserve(self, engine: SimScheduler, count: int) -> None:
        """Grant up to so many slots to an engine whose ranks all have the arena."""
        tables = self.tables
        inherited = self._mutant.waits_for_inherited and tables.writers.inherited
        if not tables.writers.attached(engine.engine, 0, RANKS) or inherited:
            return
        count = min(count, tables.pool.available)
        if not count:
            return
        granted = tables.grants.grant(engine.engine, tables.pool.allocate(count).blocks)
        self.node.granted(granted, self.life)
        epoch, life, attaches = self.life, engine.life, [rank.attaches for rank in engine.ranks]

        def told() -> None:
            if engine.life == life:
                engine.granted(granted, epoch, attaches)

        self.world.after(self.world.random.uniform(0.0, 0.02), lambda: engine.run(told))

    def commit(self, engine: SimScheduler, granted: GrantedSlots, slot: BlockId, shards: int, epoch: int) -> None:
        """One shard is written; a whole row is registered."""
        if epoch != self.life:
            return
        row = chain(f"row {granted.grant} {slot}", 1)
        try:
            done = self.tables.grants.commit(engine.engine, granted.grant, [slot], [row], shards, FULL_MASK)
        except RequestError:
            return  # the grant has ended meanwhile
        if done is not None:
            done.blocks.stage(columns(row)).register().blocks.release()
            self.node.stored += 1


class GrantWorld:
    """Everything, driven by one seed."""

    def __init__(self, seed: int, mutant: GrantMutant = UNCHANGED) -> None:
        """Prepare two engines of two ranks each."""
        self.world = SimWorld(seed)
        self.oracle = WriteOracle()
        self.arena = 1
        self.stored = 0
        self.headers: dict[BlockId, Generation] = {}
        self.manager = SimGranter(self, mutant)
        self.engines: list[SimScheduler] = []
        for engine in (EngineId("left"), EngineId("right")):
            ranks = [SimRank(self, RankId(engine, 0, rank)) for rank in range(RANKS)]
            self.engines.append(SimScheduler(self, engine, ranks))
        self.ranks = [rank for engine in self.engines for rank in engine.ranks]
        self._stormy = True
        self.world.on_section_end = self._check

    # --- phases -------------------------------------------------------------------------------------------------------
    def storm(self) -> None:
        """All faults at once."""
        plan_pair(self.world, [self.manager, self.engines[0], *self.engines[0].ranks], STORM_STEPS, FREEZE_SECONDS)
        for process in (self.manager, *self.ranks, *self.engines):
            process.start()
        self._weather()
        self.world.run(STORM_SECONDS)

    def peace(self) -> None:
        """No faults from now on, and no new grants."""
        self._stormy = False
        for engine in self.engines:
            engine.active = False
        self.world.run(FREEZE_SECONDS + PATIENCE_SECONDS + RESTART_SECONDS)
        for engine in self.engines:
            self.manager.run(partial(self.manager.lose, engine.engine))
        self.world.run(PATIENCE_SECONDS + 1.0)

    def at_rest(self) -> None:
        """Every slot can be granted again, and all ranks are there."""
        tables = self.manager.tables
        if tables.grants.quarantined_slots or tables.grants.open_slots:
            raise BrokenRuleError("I9: slots are kept for writers that are gone")
        if tables.pool.available != SLOTS or tables.pool.leaked_blocks:
            raise BrokenRuleError(f"I7: slots are lost: {tables.pool!r}")
        if not all(tables.writers.attached(engine.engine, 0, RANKS) for engine in self.engines):
            raise BrokenRuleError("I11: a rank never comes back")

    def close(self) -> None:
        """End the last life."""
        self.manager.tables.grants.close()

    def _weather(self) -> None:
        """Connections break, and processes stand still, beside the planned pair of faults."""
        chance = self.world.random
        if not self._stormy:
            return
        if chance.random() < 0.3:
            rank = chance.choice(self.ranks)
            if rank.alive:
                rank.stream.close()
                facts = rank.facts
                self.manager.run(lambda: self.manager.rank_gone(facts))
        if chance.random() < 0.2:
            chance.choice(self.ranks).freeze(chance.uniform(0.0, FREEZE_SECONDS))
        if chance.random() < 0.15:  # a rank that stands still over a restart of the block-manager is the hardest case
            chance.choice(self.ranks).freeze(chance.uniform(0.0, FREEZE_SECONDS))
            self.manager.kill()
        self.world.after(chance.uniform(0.0, 2.0), self._weather)

    # --- what is watched ----------------------------------------------------------------------------------------------
    def granted(self, granted: GrantedSlots, epoch: int) -> None:
        """Slots are granted: nobody may still write there, nor anywhere for an earlier life."""
        for rank in self.ranks:
            for copy in rank.copies:
                if copy.arena == self.arena and copy.epoch < epoch:
                    raise BrokenRuleError(f"I11: granted while {rank.name} writes for epoch {copy.epoch}")
                if copy.arena == self.arena and copy.slot in granted.slots:
                    raise BrokenRuleError(f"I2: slot {copy.slot} is granted while {rank.name} writes there")
        self.oracle.granted(Tier.G2, zip(granted.slots, granted.generations, strict=True), epoch)

    def landed(self, copy: Copy) -> None:
        """Bytes land in this arena or in one that nobody reads any more."""
        if copy.arena == self.arena:
            self.oracle.lands(Tier.G2, copy.slot, copy.epoch, copy.generation)
            self.headers[copy.slot] = copy.generation

    def replace_arena(self) -> None:
        """Another arena, with empty headers; what is granted in it is new."""
        self.arena += 1
        self.headers.clear()
        self.oracle.forget(Tier.G2)

    def _check(self) -> None:
        if not self.manager.alive:
            return
        tables = self.manager.tables
        if tables.pool.mutable != tables.grants.open_slots + tables.grants.quarantined_slots:
            raise BrokenRuleError("I7: a slot is neither granted nor in quarantine")
        if self.world.steps % 32 == 0:
            try:
                tables.pool.check_integrity()
            except IntegrityError as error:
                raise BrokenRuleError(f"I7: {error}") from error


def run_grants(seed: int, mutant: GrantMutant = UNCHANGED) -> GrantWorld:
    """One seed from the storm to the rest."""
    world = GrantWorld(seed, mutant)
    try:
        world.storm()
        world.peace()
        world.at_rest()
    finally:
        world.close()
    return world
