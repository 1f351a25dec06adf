"""Grants to engines against a model of their rank processes, which write whatever they were told until they stop.

The model knows what each process may still write: every slot of every grant that it heard of and was not told to
forget. It forgets when the engine aborts or commits a slot, when it attaches anew, and when it dies. The rules under
test must never give such a slot to anybody else, whatever happens in between.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from blockyard.core.arena_writers import ArenaWriters, AttachmentId, RankId, RankProcess, Writer, WriterState
from blockyard.core.block_facts import StagedColumns
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.pool import BlockPool
from blockyard.core.store_grants import GrantedSlots, StoreGrants
from blockyard.core.vocabulary import (
    DEFAULT_TENANT,
    ROOT_KEY,
    BlockId,
    ContentKey,
    EngineId,
    GroupId,
    IdentityDigest,
    Tier,
)
from blockyard.testing.blocks import clear
from blockyard.testing.clock import FakeClock

_SLOTS = 4
_RANKS = 2
_FULL = 0b11
_ENGINES = (EngineId("left"), EngineId("right"))


@dataclass(eq=False)
class _Process:
    """A rank process as it really is."""

    facts: RankProcess
    may_write: set[BlockId] = field(default_factory=set)
    attachment: AttachmentId | None = None
    alive: bool = True


class GrantMachine(RuleBasedStateMachine):
    """Two engines of two ranks each over one small arena."""

    @initialize()
    def start(self) -> None:
        self.clock = FakeClock()
        self.pool = BlockPool(Tier.G2, _SLOTS, LruPolicy)
        self.grants = StoreGrants()
        self.writers = ArenaWriters(self.clock)
        self.processes: list[_Process] = []
        self.open: list[tuple[EngineId, GrantedSlots]] = []
        self.masks: dict[BlockId, int] = {}
        self.started = 0
        for engine in _ENGINES:
            for rank in range(_RANKS):
                self._start_rank(RankId(engine, 0, rank))

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for process in list(self.processes):
            self._die(process)
        assert self.grants.quarantined_slots == 0, "what waits for dead processes is free"
        self.grants.close()
        self.pool.check_integrity()
        assert self.pool.available == _SLOTS, "every slot can be granted again"
        assert self.pool.leaked_blocks == 0

    # --- what processes do --------------------------------------------------------------------------------------------
    def _start_rank(self, rank: RankId) -> None:
        self.started += 1
        process = _Process(RankProcess(rank, 1_000 + self.started, self.started, "boot", 1))
        self.processes.append(process)
        self._attach(process)

    def _attach(self, process: _Process) -> None:
        process.may_write.clear()  # it stops what it was told before, then attaches
        process.attachment, ended = self.writers.attach(process.facts)
        self._ended(ended)

    def _ended(self, ended: Iterable[Writer]) -> None:
        self.grants.ended(writer.attachment for writer in ended)

    def _lose(self, engine: EngineId) -> None:
        """The life of an engine's grants is over: its session or one of its ranks ended."""
        self.grants.end(engine, [writer.attachment for writer in self.writers.of(engine, 0)])
        self.open = [entry for entry in self.open if entry[0] != engine]
        awaited = self.grants.awaited
        for process in self._of(engine):
            if process.attachment is not None:
                self.writers.detach(process.attachment)
                if process.attachment not in awaited:
                    self.writers.end(process.attachment)
                process.attachment = None

    def _die(self, process: _Process) -> None:
        process.alive = False
        process.may_write.clear()
        if process.attachment is not None:
            self._lose(process.facts.rank.engine)
        dead = [writer for writer in self.writers if writer.process == process.facts]
        for writer in dead:
            self.writers.end(writer.attachment)
        self._ended(tuple(dead))
        self.processes.remove(process)

    def _of(self, engine: EngineId) -> list[_Process]:
        return [process for process in self.processes if process.facts.rank.engine == engine]

    def _usable(self, engine: EngineId) -> bool:
        return self.writers.attached(engine, 0, _RANKS) and not self.writers.inherited

    # --- rules --------------------------------------------------------------------------------------------------------
    @rule(engine=st.sampled_from(_ENGINES), count=st.integers(1, 3))
    def reserve(self, engine: EngineId, count: int) -> None:
        count = min(count, self.pool.available)
        if not count or not self._usable(engine):
            return
        granted = self.grants.grant(engine, self.pool.allocate(count).blocks)
        for process in self.processes:
            assert not process.may_write.intersection(granted.slots), "a slot is granted while somebody may write it"
        for process in self._of(engine):
            process.may_write.update(granted.slots)
        self.open.append((engine, granted))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), shards=st.sampled_from([0b01, 0b10, 0b11]))
    def commit(self, data: st.DataObject, shards: int) -> None:
        engine, granted = data.draw(st.sampled_from(self.open))
        slot = data.draw(st.sampled_from(granted.slots))
        content = ContentKey(slot.to_bytes(16, "little"))
        for process in self._of(engine):
            if shards >> process.facts.rank.rank & 1:
                process.may_write.discard(slot)
        done = self.grants.commit(engine, granted.grant, [slot], [content], shards, _FULL)
        self.masks[slot] = self.masks.get(slot, 0) | shards
        assert (done is not None) == (self.masks[slot] == _FULL), "a row completes with the full mask, and only then"
        if done is None:
            return
        self._forget(engine, granted, slot)
        assert all(slot not in process.may_write for process in self.processes)
        columns = StagedColumns(
            keys=[content],
            parents=[ROOT_KEY],
            positions=[0],
            identity=IdentityDigest(bytes(32)),
            tenant=DEFAULT_TENANT,
            group=GroupId(0),
        )
        done.blocks.stage(columns).register().blocks.release()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        engine, granted = data.draw(st.sampled_from(self.open))
        slot = data.draw(st.sampled_from(granted.slots))
        for process in self._of(engine):
            process.may_write.discard(slot)
        self.grants.abort(engine, granted.grant, [slot])
        self._forget(engine, granted, slot)

    def _forget(self, engine: EngineId, granted: GrantedSlots, slot: BlockId) -> None:
        self.masks.pop(slot, None)
        place = self.open.index((engine, granted))
        left = [index for index, other in enumerate(granted.slots) if other != slot]
        rest = GrantedSlots(
            granted.grant,
            tuple(granted.slots[index] for index in left),
            tuple(granted.generations[index] for index in left),
        )
        self.open[place : place + 1] = [(engine, rest)] if left else []

    @rule(engine=st.sampled_from(_ENGINES))
    def session_ends(self, engine: EngineId) -> None:
        self._lose(engine)

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def rank_is_lost(self, data: st.DataObject) -> None:
        self._lose(data.draw(st.sampled_from(self.processes)).facts.rank.engine)

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def rank_attaches_again(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from(self.processes))
        if process.attachment is not None:
            self._lose(process.facts.rank.engine)
        self._attach(process)

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def rank_dies(self, data: st.DataObject) -> None:
        self._die(data.draw(st.sampled_from(self.processes)))

    @rule(engine=st.sampled_from(_ENGINES), rank=st.integers(0, _RANKS - 1))
    def rank_starts(self, engine: EngineId, rank: int) -> None:
        attached = [process.facts.rank.rank for process in self._of(engine) if process.attachment is not None]
        if rank not in attached:
            self._start_rank(RankId(engine, 0, rank))

    @rule()
    def manager_restarts(self) -> None:
        """Tables are filled from headers again; of writers only the records are known."""
        processes = sorted({writer.process for writer in self.writers})
        self.grants.close()
        self.open.clear()
        self.masks.clear()
        self.pool = BlockPool(Tier.G2, _SLOTS, LruPolicy)
        self.writers = ArenaWriters(self.clock)
        for process in processes:
            self.writers.inherit(process)
        for known in self.processes:
            known.attachment = None

    @rule()
    def arena_is_replaced(self) -> None:
        """What anybody writes from now on under old grants lands in memory that nobody reads."""
        for engine in _ENGINES:
            self._lose(engine)
        self.writers.arena_replaced()
        self.grants.close()
        clear(self.pool).doomed.release()
        for process in self.processes:
            process.may_write.clear()

    @rule(count=st.integers(1, 3))
    def the_node_itself_uses_slots(self, count: int) -> None:
        if self.writers.inherited or self.pool.available < count:
            return
        with self.pool.allocate(count).blocks as blocks:
            for process in self.processes:
                assert not process.may_write.intersection(blocks.ids), "a slot is granted while somebody may write it"

    @rule(seconds=st.sampled_from([1.0, 6.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        before = {writer.attachment for writer in self.writers}
        self.clock.advance(seconds)
        assert {writer.attachment for writer in self.writers} == before, "time ends nothing"

    # --- what always holds --------------------------------------------------------------------------------------------
    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "pool"):
            return
        assert self.grants.open_slots == sum(len(granted.slots) for _, granted in self.open)
        assert self.pool.mutable == self.grants.open_slots + self.grants.quarantined_slots
        awaited = self.grants.awaited
        known = {writer.attachment for writer in self.writers}
        assert awaited <= known, "nothing waits for a writer that is forgotten"
        assert all(
            writer.state is not WriterState.ATTACHED for writer in self.writers if writer.attachment in awaited
        ), "who is waited for is asked to attach anew"


TestGrants = GrantMachine.TestCase
TestGrants.settings = settings(max_examples=200, stateful_step_count=50)
