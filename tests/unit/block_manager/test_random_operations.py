"""Many operations in random order, with workers that fail, stall, disconnect and die at any point.

Whatever happens: tables, events and headers agree; a load is answered once, and only with right bytes; when everything
has come to rest nobody holds anything and every slot is free or registered.
"""

import random

import pytest
from tests.unit.block_manager.world import GROUPS, OW, RT, Engine, MakeWorld, World

from blockyard.core.block_name import names_of
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import BlockyardError
from blockyard.core.vocabulary import EngineBlockId, ItemStatus, LoadId, RequestId, Tier, WorkerRole
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import payload_of
from blockyard.tiers.header import HeaderState
from blockyard.wire import worker_channel as channel

STEPS = 300
CHAINS = [chain(name, 10) for name in "abcde"]
G1_BLOCKS = 40
FAULTS = (ItemStatus.IO_ERROR, ItemStatus.UNKNOWN, ItemStatus.TIMEOUT, ItemStatus.NO_SPACE)


class Storm:
    """Random operations on one world."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.loads: dict[LoadId, tuple[Engine, ChainRun, int]] = {}
        self.clears = 0
        """Clears that have not ended."""
        self.opened = 0
        for name in ("one", "two"):
            world.connect(name, G1_BLOCKS)
        world.between_steps = self.meanwhile

    def run(self) -> None:
        operations = (
            [self.compute] * 8
            + [self.load] * 14
            + [self.move] * 40
            + [self.flow] * 6
            + [self.recover] * 6
            + [self.reuse, self.tick, self.tick, self.reserve, self.release, self.close_load] * 2
            + [self.damage, self.clear, self.lose, self.die, self.engine_goes, self.restart_manager, self.reset]
        )
        for _ in range(STEPS):
            self.random.choice(operations)()
            self.check_answers()
            self.world.check_writes()
            self.world.core.tables.pool(Tier.G2).check_integrity()
        self.calm()

    # --- engines ------------------------------------------------------------------------------------------------------
    def engine(self) -> Engine:
        return self.world.engines[self.random.choice(("one", "two"))]

    def part(self) -> ChainRun:
        return self.random.choice(CHAINS).slice(0, self.random.randint(1, 10))

    def free_place(self, engine: Engine, blocks: int) -> int | None:
        """Memory that no open load may still write."""
        busy = {
            first + index
            for load, (owner, run, first) in self.loads.items()
            if owner.name == engine.name
            for index in range(len(run))
        }
        places = [first for first in range(G1_BLOCKS - blocks) if not busy & set(range(first, first + blocks))]
        return self.random.choice(places) if places else None

    def compute(self) -> None:
        engine, run = self.engine(), self.part()
        first = self.free_place(engine, len(run))
        if first is not None:
            engine.compute(run, first)

    def reuse(self) -> None:
        """Memory is reused: the guard rises first; sometimes the message comes much later."""
        engine = self.engine()
        first = self.free_place(engine, 1)
        if first is None:
            return
        engine.memory.guards[first] += 1
        engine.memory.blocks[first] = b"something else"
        if self.random.random() < 0.7:
            self.world.core.deregister(engine.session, [EngineBlockId(first)])

    def reset(self) -> None:
        self.world.core.reset(self.engine().session)

    def engine_goes(self) -> None:
        name = self.random.choice(("one", "two"))
        self.world.core.close_session(self.world.engines[name].session)
        for load in [load for load, (engine, _, _) in self.loads.items() if engine.name == name]:
            del self.loads[load]
        # A new process has new memory: an old write must not be able to reach it.
        self.world.memories.pop(hash(name), None)
        self.world.connect(name, G1_BLOCKS)

    # --- requests -----------------------------------------------------------------------------------------------------
    def load(self) -> None:
        engine, run = self.engine(), self.part()
        first = self.free_place(engine, len(run))
        if first is None:
            return
        self.opened += 1
        ttl_ms = self.random.choice((50, 500, 10_000))
        load = engine.load(run, first, ttl_ms, request=f"r{self.random.randint(0, 3)}")
        self.loads[load] = (engine, run, first)

    def close_load(self) -> None:
        if self.loads:
            load, (engine, _, _) = self.random.choice(list(self.loads.items()))
            self.world.core.close_load(engine.session, load)

    def reserve(self) -> None:
        request = RequestId(f"r{self.random.randint(0, 3)}")
        self.world.core.reserve(self.engine().session, request, names_of(self.part()), GROUPS, 2_000)

    def release(self) -> None:
        self.world.core.release(self.engine().session, RequestId(f"r{self.random.randint(0, 3)}"))

    def clear(self) -> None:
        """Afterwards the tier is empty, and when it is done no header of before could come back at a restart."""
        world, tier = self.world, self.random.choice((Tier.G2, Tier.G3))
        slots = world.tiers[tier].slots
        before = {(place, slot.generation) for place, slot in enumerate(slots) if slot.state is not HeaderState.EMPTY}

        def done(counts: object) -> None:
            self.clears -= 1
            ready = {(place, slot.generation) for place, slot in enumerate(slots) if slot.state is HeaderState.READY}
            assert not ready & before, (tier, ready & before)

        try:
            world.core.clear(tier, done)
        except BlockyardError:
            return
        self.clears += 1
        assert world.held(tier) == world.announced(tier) == set()

    # --- workers ------------------------------------------------------------------------------------------------------
    def move(self) -> None:
        """One step of the machinery, whichever."""
        world = self.world
        role = self.random.choice(world.roles)
        worker = world.workers[role]
        worker.fault = self.fault if self.random.random() < 0.2 else lambda job, item: None
        step = self.random.randrange(6)
        if step == 0:
            world.submit(role)
        elif step == 1:
            worker.start()
        elif step == 2 and worker.running:
            worker.finish(self.random.choice(worker.running))
        elif step == 3:
            world.deliver(role, everything=self.random.random() < 0.3)
        elif step == 4 and world.index.questions:
            world.index.answer()
        elif step == 5:
            world.list_inventory()

    def meanwhile(self) -> None:
        """What may happen between the steps of a comparison: only results of the worker that lists have to wait."""
        operations = [self.compute, self.load, self.reserve, self.release, self.close_load, self.clear, self.reset]
        self.random.choice([*operations, self.tick, self.work_of_others, self.work_of_others])()

    def work_of_others(self) -> None:
        world, offload, remote = self.world, self.world.workers[OW], self.world.workers[RT]
        for worker in (offload, remote):
            worker.start()
            if worker.running and self.random.random() < 0.7:
                worker.finish(self.random.choice(worker.running))
        world.submit(RT)
        world.deliver(RT)
        if world.index.questions:
            world.index.answer()

    def flow(self) -> None:
        """For a moment everything works."""
        for role in self.world.roles:
            self.world.workers[role].fault = lambda job, item: None
        self.world.settle()

    def recover(self) -> None:
        """Workers that are away come back."""
        for role in self.world.roles:
            if role not in self.world.connected:
                self.attach(role)

    def fault(self, job: channel.Job, item: int) -> ItemStatus | None:
        return self.random.choice(FAULTS) if self.random.random() < 0.3 else None

    def damage(self) -> None:
        tier = self.random.choice((Tier.G2, Tier.G3))
        ready = [slot for slot in self.world.tiers[tier].slots if slot.state is HeaderState.READY]
        if ready:
            self.random.choice(ready).damage()

    def lose(self) -> None:
        role = self.random.choice(self.world.roles)
        if role in self.world.connected:
            self.world.lose(role)
        else:
            self.attach(role)

    def die(self) -> None:
        role = self.random.choice(self.world.roles)
        self.world.restart(role)
        if role is RT and self.random.random() < 0.5:
            self.world.core.remote_proven_dead()
        if role is OW and self.random.random() < 0.5:
            self.world.core.offload_proven_dead()
        if role is OW:
            for tier in self.world.tiers.values():
                for slot in tier.slots:
                    if slot.state is HeaderState.READY and self.random.random() < 0.1:
                        slot.state = HeaderState.WRITING  # a torn header is no block
        if self.random.random() < 0.6:
            self.attach(role)

    def attach(self, role: WorkerRole) -> None:
        if role is RT and self.world.core.recovery.arena is None:
            return  # the remote tier is attached with the arena
        self.world.attach(role)

    def restart_manager(self) -> None:
        if self.random.random() < 0.5:
            return
        self.check_answers()
        self.loads.clear()
        self.clears = 0
        self.world.start_manager()
        self.world.attach(OW)
        for name in ("one", "two"):
            self.world.memories.pop(hash(name), None)
            self.world.connect(name, G1_BLOCKS)
        if self.random.random() < 0.7:
            self.world.attach(RT)

    def tick(self) -> None:
        self.world.tick(self.random.choice((0.0, 0.05, 0.3, 3.0)))

    # --- what must hold -----------------------------------------------------------------------------------------------
    def check_answers(self) -> None:
        for load in [load for load in self.loads if load in self.world.outcomes]:
            engine, run, first = self.loads.pop(load)
            outcome = self.world.outcomes[load]
            for index, (status, source) in enumerate(zip(outcome.status, outcome.sources, strict=True)):
                assert (status is ItemStatus.OK) == (source is not None)
                if status is ItemStatus.OK:
                    assert engine.memory.blocks[first + index] == payload_of(run.digest(index))

    def calm(self) -> None:
        """Faults are over: everything comes to rest."""
        world = self.world
        for role in world.roles:
            world.workers[role].fault = lambda job, item: None
            if role not in world.connected:
                world.attach(role)
        for seconds in (0.0, 0.5, 15.0, 5.0, 60.0, 5.0, 5.0):
            world.settle()
            world.tick(seconds)
        world.settle()
        self.check_answers()
        assert self.loads == {}, "every load is answered"
        assert self.clears == 0, "every clear ends"
        world.at_rest()
        self.still_works()

    def still_works(self) -> None:
        """Every slot can still be granted: no generation lags behind its header."""
        fresh = chain("fresh", 24)
        self.engine().compute(fresh)
        self.world.settle()
        assert {bytes(key) for key in fresh} <= self.world.held(Tier.G3)
        self.world.at_rest()


@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_operations_and_failures_leaves_the_node_whole(make_world: MakeWorld, seed: int) -> None:
    world = make_world(g2=12, g3=24, profile={"listing_part": 3}).ready()
    Storm(world, seed).run()
