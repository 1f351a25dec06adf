"""A whole node in one simulation: block-manager, workers and an engine, a storm of faults, then peace.

``storm`` runs with every fault at once and one planned pair of kills and freezes; ``peace`` ends all faults, starts
what is dead and lets everything drain; ``at_rest`` holds what must be true then. What must hold always is checked when
it happens, by the oracle of writes, or at the end of a section.
Threading: one thread.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tests.property.node_sim.engine import BLOCK_BYTES, BLOCK_TOKENS, SimEngine
from tests.property.node_sim.manager import SimManager, dropped_unwritten

from blockyard.core.clear_scope import EVERYTHING
from blockyard.core.errors import BlockyardError, IntegrityError
from blockyard.core.events import ClearedEvent, KvEvent, OffloadedEvent, RemovedEvent
from blockyard.core.handles import MutableBlocks
from blockyard.core.offload_plan import OffloadRules, WritePolicy
from blockyard.core.pack_plan import PackGeometry
from blockyard.core.states import RowState
from blockyard.core.vocabulary import BlockId, ContentKey, Epoch, GroupId, NodeName, Tier, WorkerRole
from blockyard.testing.fake_slots import FakeStore, FakeTier
from blockyard.testing.fake_worker import FakeWorker
from blockyard.testing.sim.fault_plan import plan_pair
from blockyard.testing.sim.ports import LossyPort, PortFaults
from blockyard.testing.sim.worker import KERNEL_SECONDS, SimWorker, WorkerLife
from blockyard.testing.sim.world import Process, SimWorld
from blockyard.testing.sim.write_oracle import BrokenRuleError, WriteOracle
from blockyard.tiers.header import HeaderState
from blockyard_block_manager.clearing import ClearCounts
from blockyard_block_manager.job_order import JobOrder, OpenOrder, OrderReport, SettledCallback
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import LOCAL_TIERS

G2_SLOTS: Final = 8
G3_SLOTS: Final = 12
STORM_SECONDS: Final = 3.5
STORM_STEPS: Final = 220
FREEZE_SECONDS: Final = 2.0
LATE_SECONDS: Final = 2.5
WINDOW: Final = 40
"""Jobs and ids that a worker may remember."""
_RESTART_SECONDS: Final = 0.8
_SOON_SECONDS: Final = 0.4
"""Time within which each new life of the block-manager clears a tier: jobs of the earlier one still run."""
_KILL_AFTER_CLEAR: Final = 0.3
_CHECK_EVERY: Final = 32
"""Sections between two checks of the whole tables."""
_BEING_WRITTEN: Final = (RowState.MUTABLE, RowState.COMPLETE)
_GEOMETRY: Final = PackGeometry(BLOCK_BYTES, 4 * (BLOCK_BYTES + 256))
_PROFILE: Final = NodeProfile(
    instance=NodeName("node"),
    epoch=Epoch(0),
    block_bytes=BLOCK_BYTES,
    block_tokens=BLOCK_TOKENS,
    remote_runs=True,
    pack_target_bytes=_GEOMETRY.target_bytes,
    tail_idle_seconds=0.5,
    max_items=2,
    store_ttl_ms=1_500,
    listing_part=3,
    sweep_part=1,
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A node that breaks one rule: its workers are made by another class, or its decisions are spoilt."""

    make_worker: WorkerLife = FakeWorker
    spoil: Callable[[NodeCore], None] = lambda core: None
    disk_rules: OffloadRules = OffloadRules()


UNCHANGED: Final = Mutant()
WRITES_BACK: Final = Mutant(disk_rules=OffloadRules(policy=WritePolicy.WRITE_BACK))
"""Two that break none."""


class SimNode:
    """Everything, driven by one seed."""

    def __init__(self, seed: int, mutant: Mutant = UNCHANGED) -> None:
        """Prepare all processes; a mutant breaks a rule on purpose."""
        self.world = SimWorld(seed)
        chance = self.world.random
        loss, repeat, late = (chance.uniform(0.0, 0.2) for _ in range(3))
        self.faults = PortFaults(loss, repeat, late, late_seconds=LATE_SECONDS)
        self.oracle = WriteOracle()
        self.tiers = {Tier.G2: FakeTier.of("arena", G2_SLOTS), Tier.G3: FakeTier.of("slab", G3_SLOTS)}
        store, port = FakeStore(_GEOMETRY), LossyPort(self.world, self.faults)
        self.workers = {
            role: SimWorker(self.world, role, self.tiers, store, port, self.oracle, mutant.make_worker)
            for role in WorkerRole
        }
        self.manager = SimManager(self.world, replace(_PROFILE, disk_rules=mutant.disk_rules), self.workers)
        self.engine = SimEngine(self.world, self.manager)
        self.processes: list[Process] = [self.manager, *self.workers.values(), self.engine]
        self.settled: list[int] = []
        """How often each order was told its end."""
        self.clears: dict[Tier, int] = dict.fromkeys(LOCAL_TIERS, 0)
        """Clears that have ended."""
        self.clear_seconds = 1.0
        """Mean time between two clears."""
        self._sections = 0
        for worker in self.workers.values():
            worker.failing = chance.choice((0.0, 0.1))
        for process in self.processes:
            process.on_death.append(partial(self._will_restart, process))
        self.manager.on_life += [self._watch, mutant.spoil]
        self.world.on_section_end = self._section_ended

    # --- phases -------------------------------------------------------------------------------------------------------
    def storm(self, seconds: float = STORM_SECONDS) -> None:
        """All faults at once."""
        plan_pair(self.world, self.processes, STORM_STEPS, FREEZE_SECONDS)
        if self.world.random.random() < 0.5:  # most rules are about what an earlier life of it left behind
            self.world.plan(self.world.random.randint(1, STORM_STEPS), self.manager.kill)
        for process in self.processes:
            process.start()
        self._clear_later()
        self.world.run(seconds)
        self.storm_steps = self.world.steps

    def peace(self) -> None:
        """No faults from now on: everybody lives, links are made anew, and all work ends."""
        self.engine.active = False
        self.clear_seconds = math.inf
        self.faults.end()
        for worker in self.workers.values():
            worker.failing = 0.0
        self.world.run(max(FREEZE_SECONDS, _RESTART_SECONDS, self.faults.late_seconds))
        for role in WorkerRole:
            self.manager.reconnect(role)
        for _ in range(50):
            self.world.run(0.75)
            if self._drained():
                return

    def close(self) -> None:
        """End the last lives."""
        for process in self.processes:
            process.on_death.clear()
            process.kill()

    def _drained(self) -> bool:
        core = self.manager.core
        waiting = self.engine.waiting or core.desk.open_orders() or len(core.leases) or core.recovery.needs_listing
        return not waiting and core.tables.grants_open

    def _will_restart(self, process: Process) -> None:
        held = KERNEL_SECONDS if process in self.workers.values() else 0.0
        self.world.after(held + self.world.random.uniform(0.01, _RESTART_SECONDS), process.start)

    # --- clear --------------------------------------------------------------------------------------------------------
    def _clear_later(self) -> None:
        if self.clear_seconds == math.inf:
            return
        self.manager.run(self._clear_any)
        self.world.after(self.world.random.uniform(0.0, 2 * self.clear_seconds), self._clear_later)

    def _clear_any(self) -> None:
        self._clear(self.world.random.choice(LOCAL_TIERS))

    def _clear(self, tier: Tier) -> None:
        """What the clear meets adds up, and none of it appears again: in this life at once, in later ones once done."""
        core = self.manager.core
        if not core.tables.has(tier):
            return
        pool = core.tables.pool(tier)
        cut, findable = self.oracle.last_grant, len(pool.registered())
        rows = map(BlockId, range(pool.capacity))
        in_flight = sum(pool.state(row) in _BEING_WRITTEN and not pool.is_doomed(row) for row in rows)

        def done(counts: ClearCounts) -> None:
            if counts.headers_freed < counts.removed + counts.pinned:
                raise BrokenRuleError(f"I18: a clear ended with headers that are not free: {counts}")
            self.oracle.cleared(tier, cut)
            self.clears[tier] += 1
            if self.clear_seconds < math.inf and self.world.random.random() < _KILL_AFTER_CLEAR:
                self.world.after(self.world.random.uniform(0.0, _SOON_SECONDS / 8), self.manager.kill)

        try:
            operation = core.clear(tier, done)
        except BlockyardError:
            return
        self.manager.cuts[tier] = cut
        dropped = in_flight - operation.doomed
        if operation.removed + operation.pinned != findable or not 0 <= dropped <= operation.dropped:
            raise BrokenRuleError(
                f"I18: a clear of {findable} blocks and {in_flight} writes reports {operation.counts}"
            )
        if self.manager.events.announced(tier):
            raise BrokenRuleError("I18: a cleared tier is announced as holding blocks")
        self.manager.pump()

    # --- what is watched ----------------------------------------------------------------------------------------------
    def _watch(self, core: NodeCore) -> None:
        """See the grants, the ends of orders and the events of a new life."""
        self.manager.cuts = {}
        epoch, grant, hand_in = core.profile.epoch, core.tables.grant, core.desk.hand_in

        def granting(tier: Tier, count: int) -> MutableBlocks:
            unwritten = _unwritten(core) if tier is Tier.G2 else set()
            counted = dropped_unwritten()
            blocks = grant(tier, count)
            self._check_writers(epoch)
            self._check_counted(unwritten - set(core.tables.in_g2()), dropped_unwritten() - counted)
            self.oracle.granted(tier, zip(blocks.ids, blocks.generations, strict=True), epoch)
            return blocks

        def handing_in(order: JobOrder, on_settled: SettledCallback) -> OpenOrder:
            number = len(self.settled)
            self.settled.append(0)

            def told(report: OrderReport) -> None:
                self.settled[number] += 1
                if self.settled[number] > 1:
                    raise BrokenRuleError("I8: an order is told its end twice")
                on_settled(report)

            return hand_in(order, told)

        self.manager.after(self.world.random.uniform(0.0, _SOON_SECONDS), self._clear_any)
        setattr(core.tables, "grant", granting)  # noqa: B010
        setattr(core.desk, "hand_in", handing_in)  # noqa: B010
        self.manager.events.on_event = self._appended

    def _check_writers(self, epoch: Epoch) -> None:
        for role, worker in self.workers.items():
            if worker.alive and worker.life_of_manager not in (0, epoch):
                raise BrokenRuleError(f"I11: granted while the {role.label} serves epoch {worker.life_of_manager}")

    def _check_counted(self, lost: set[tuple[ContentKey, GroupId]], counted: float) -> None:
        if counted != len(lost):
            raise BrokenRuleError(f"P: {len(lost)} blocks left G2 before they were written, {counted} are counted")

    def _appended(self, event: KvEvent) -> None:
        if isinstance(event, RemovedEvent | ClearedEvent):
            return
        tier = event.to_tier if isinstance(event, OffloadedEvent) else event.tier
        if tier not in LOCAL_TIERS:
            return
        pool = self.manager.core.tables.pool(tier)
        for row in pool.find(event.blocks.keys, event.scope.group):
            if row is not None:
                self.oracle.appears(tier, row, pool.generation(row), self.manager.cuts.get(tier, 0))

    def _section_ended(self) -> None:
        self._sections += 1
        if self._sections % _CHECK_EVERY == 0 and self.manager.alive and self.manager.core.tables.has(Tier.G3):
            for tier in LOCAL_TIERS:
                self._check_tier(tier)

    def _check_tier(self, tier: Tier) -> None:
        pool = self.manager.core.tables.pool(tier)
        try:
            pool.check_integrity()
        except IntegrityError as error:
            raise BrokenRuleError(f"I7: {error}") from error
        if pool.leaked_blocks or pool.abandoned:
            raise BrokenRuleError(f"I7: rows of {tier.label} have left circulation")
        held = {bytes(block.key) for block in pool.registered()}
        if self.manager.events.announced(tier) != held:
            raise BrokenRuleError(f"I12: the events of {tier.label} do not add up to its table")
        for worker in self.workers.values():
            if worker.inner.violations:
                raise BrokenRuleError(f"I2: {worker.inner.violations}")

    # --- at rest ------------------------------------------------------------------------------------------------------
    def at_rest(self) -> None:
        """Everything has ended, and tables and headers agree."""
        core = self.manager.core
        if self.engine.waiting or core.desk.open_orders() or len(core.flights) or len(core.loads):
            raise BrokenRuleError(f"I8: not everything has ended: {core.desk.open_orders()}")
        if core.tables.pins.count or len(core.leases):
            raise BrokenRuleError("I9: pins are left")
        for tier in LOCAL_TIERS:
            self._check_tier(tier)
            pool = core.tables.pool(tier)
            if pool.held or pool.doomed:
                raise BrokenRuleError("I9: blocks are held by nobody's pin")
            if pool.mutable or pool.complete or pool.await_free:
                raise BrokenRuleError(f"I7: slots never come back: {pool!r}")
            self._check_headers(tier)
        if 0 in self.settled:
            raise BrokenRuleError("I8: an order was never told its end")
        for worker in self.workers.values():
            if worker.most_remembered > WINDOW:
                raise BrokenRuleError(f"I8: a worker remembers {worker.most_remembered} jobs")

    def _check_headers(self, tier: Tier) -> None:
        core = self.manager.core
        registered = {
            (block.block, block.generation, bytes(block.key)) for block in core.tables.pool(tier).registered()
        }
        ready = {
            (index, slot.generation, slot.digest[:16])
            for index, slot in enumerate(self.tiers[tier].slots)
            if slot.state is HeaderState.READY
        }
        stale = {(item.block, item.generation) for item in core.tables.stale_headers()} if tier is Tier.G2 else set()
        if not registered <= ready:
            raise BrokenRuleError(f"I6: registered without a READY header: {registered - ready}")
        unknown = [item for item in ready - registered if item[:2] not in stale]
        if unknown:
            raise BrokenRuleError(f"I6: READY and not registered: {unknown}")


def _unwritten(core: NodeCore) -> set[tuple[ContentKey, GroupId]]:
    """Blocks of G2 that are still to be written to G3: those with a turn, and under write-back all that nobody gave up.

    Not those on their way to it, of which another row may have been the source.
    """
    disk, tables = core._disk, core.tables
    if not tables.has(Tier.G3):
        return set()
    under_way = {(name.key, name.scope.group) for name in disk._queue._queue._under_way}
    resting = [block for block in tables.in_g2() if block not in under_way]
    blocks = [block for block in resting if not tables.holds(Tier.G3, [block[0]], block[1])[0]]
    if disk._ahead is not None:
        return {block for block in blocks if block in disk._retries or block not in disk._ahead._given_up}
    waiting = {(name.key, name.scope.group) for name in disk._queue.in_scope(EVERYTHING)}
    return {block for block in blocks if block in waiting or block in disk._retries}


def run_node(seed: int, mutant: Mutant = UNCHANGED) -> SimNode:
    """One seed from the storm to the rest."""
    node = SimNode(seed, mutant)
    try:
        node.storm()
        node.peace()
        node.at_rest()
    finally:
        node.close()
    return node
