"""Nodes that want one name: their leases, the server that keeps the record, and whoever hears them speak.

Two nodes have folders of their own; a third runs on a copy of the first one's folder, so that lives of one folder meet.
Wall clocks are stepped, the server is away at times and now and then comes back without its data.
Threading: one thread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from blockyard.core.clock import Clock
from blockyard.core.name_lease import LeaseState, LeaseStep, NameHolder, NameLease, NextLeaseStep, WriteRecord
from blockyard.core.vocabulary import Epoch
from blockyard.testing.sim.fault_plan import plan_pair
from blockyard.testing.sim.ports import LossyPort, PortFaults
from blockyard.testing.sim.world import Process, SimWorld
from blockyard.testing.sim.write_oracle import BrokenRuleError

AnswerT = TypeVar("AnswerT")

TTL_SECONDS: Final = 10.0
TICK_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 0.5
CALL_SECONDS: Final = 2.0
STORM_SECONDS: Final = 80.0
STORM_STEPS: Final = 260
FREEZE_SECONDS: Final = 3 * TTL_SECONDS
_SPEAK_SECONDS: Final = 0.7
_RESTART_SECONDS: Final = 4.0
_HOUR_MS: Final = 3_600_000


class NameServer(Process):
    """One record, its revision and its time to live."""

    def __init__(self, world: SimWorld) -> None:
        """Start without a record."""
        super().__init__(world, "server")
        self.away = False
        self.revision = 0
        self.expirations = 0
        self.holder: NameHolder | None = None
        self.forgot_at = float("-inf")
        self.connections = 0
        """How often all connections have ended."""
        self._expires_at = 0.0
        self._replaced_at: dict[NameHolder, float] = {}

    def read(self) -> tuple[NameHolder | None, int]:
        """Holder and revision."""
        self._expire()
        return self.holder, self.revision

    def write(self, holder: NameHolder, over: int) -> int | None:
        """Write over a revision; the new one, or None where it is another by now."""
        self._expire()
        if over != self.revision:
            return None
        if self.holder is not None and self.holder.folder != holder.folder:
            raise BrokenRuleError(f"R3: {holder} replaces {self.holder}, whose lease is alive")
        if self.holder is not None and self.holder.epoch > holder.epoch:
            raise BrokenRuleError(f"R3: {holder} replaces a later life")
        if self.holder is not None and self.holder != holder:
            self._replaced_at[self.holder] = self.world.now
        self.holder, self.revision = holder, self.revision + 1
        self._expires_at = self.world.now + TTL_SECONDS
        return self.revision

    def forget(self) -> None:
        """Come back without data: connections end, numbers start anew."""
        self.holder, self.revision = None, 0
        self.connections += 1
        self.forgot_at = self.world.now

    def hear(self, speaker: NameHolder) -> None:
        """Somebody speaks in the name."""
        self._expire()
        now, holder = self.world.now, self.holder
        replaced = holder is not None and holder.folder == speaker.folder and holder.epoch > speaker.epoch
        # Whom a later life of its folder replaced is refused by all who hear it, and learns it at its next renewal.
        unaware = replaced and now - self._replaced_at.get(speaker, now) <= TTL_SECONDS
        if holder != speaker and not unaware and now - self.forgot_at > TTL_SECONDS:
            raise BrokenRuleError(f"I14: {speaker} speaks in a name that {self.holder} holds")

    def _expire(self) -> None:
        if self.holder is not None and self.world.now >= self._expires_at:
            self.holder, self.revision = None, self.revision + 1
            self.expirations += 1


@dataclass(slots=True)
class NodeFolder:
    """State folder: its identity, and the epoch that was stored last."""

    name: str
    stored: int = 0

    def next_epoch(self, clock: Clock) -> Epoch:
        """Epoch of the next life: above the stored one, whatever the wall clock says."""
        self.stored = max(self.stored + 1, clock.wall_ms())
        return Epoch(self.stored)


@dataclass(frozen=True, slots=True)
class LeaseMutant:
    """A node that breaks a rule on purpose."""

    spoil: Callable[[NameLease, Clock], None] = lambda lease, clock: None
    may_speak: Callable[[NameLease], bool] = lambda lease: lease.may_speak
    clock: Callable[[SimWorld], Clock] = lambda world: world.clock


UNCHANGED: Final = LeaseMutant()


class LeaseNode(Process):
    """Lives of one node, as far as its name is concerned."""

    def __init__(
        self, world: SimWorld, name: str, folder: NodeFolder, server: NameServer, port: LossyPort, mutant: LeaseMutant
    ) -> None:
        """Prepare."""
        super().__init__(world, name)
        self.folder: Final = folder
        self.lease: NameLease
        self.spoken = 0
        self.retired = False
        """Whether it is started again after its end."""
        self._server = server
        self._port = port
        self._mutant = mutant
        self._me: NameHolder
        self._call = self._connection = 0

    def started(self) -> None:
        """Take a higher epoch and ask for the name."""
        self._connection = self._server.connections
        epoch = self.folder.next_epoch(self.world.clock)
        clock = self._mutant.clock(self.world)
        self._me = NameHolder(self.folder.name, epoch)
        self.lease = NameLease(self.folder.name, epoch, clock, ttl_seconds=TTL_SECONDS)
        self._mutant.spoil(self.lease, clock)
        self._attempt()
        self._speak()

    def died(self) -> None:
        """Come back later, with a higher epoch."""
        self.world.after(self.world.random.uniform(0.1, _RESTART_SECONDS), self._restart)

    def _restart(self) -> None:
        if not self.retired and not self.alive:
            self.start()

    def reconnected(self) -> None:
        """The connection to the server ended, and there is another."""
        self._connection = self._server.connections
        self.lease.away()

    # --- messages -----------------------------------------------------------------------------------------------------
    def _attempt(self) -> None:
        self._carry_out(self.lease.next_step())

    def _carry_out(self, step: NextLeaseStep) -> None:
        if isinstance(step, WriteRecord):
            self._ask(partial(self._server.write, self._me, step.over), partial(self._wrote, step))
        elif step is LeaseStep.READ:
            self._ask(self._server.read, self._found)
        elif self.lease.state is LeaseState.FENCED:
            self.kill()
        else:
            self.after(TICK_SECONDS, self._attempt)

    def _ask(self, question: Callable[[], AnswerT], told: Callable[[AnswerT], None]) -> None:
        """One call: the first answer counts, and after a while none is one, too."""
        self._call += 1
        call, life, connection = self._call, self.life, self._connection

        def heard(answer: AnswerT) -> None:
            if (call, life) == (self._call, self.life):
                self._call += 1
                told(answer)

        def arrives() -> None:
            if not self._server.away and connection == self._server.connections:
                answer = question()
                self._port.send(self, lambda: heard(answer))

        self._port.send(self._server, arrives)
        self.after(CALL_SECONDS, partial(self._no_answer, call))

    def _no_answer(self, call: int) -> None:
        if call == self._call:
            self._call += 1
            self.lease.away()
            self.after(RETRY_SECONDS, self._attempt)

    def _wrote(self, write: WriteRecord, revision: int | None) -> None:
        if revision is None:
            self._carry_out(self.lease.refused())
            return
        self.lease.written(write, revision)
        self.after(TICK_SECONDS, self._attempt)

    def _found(self, answer: tuple[NameHolder | None, int]) -> None:
        self._carry_out(self.lease.found(*answer))

    def _speak(self) -> None:
        if self._mutant.may_speak(self.lease):
            self._server.hear(self._me)
            self.spoken += 1
        self.after(_SPEAK_SECONDS, self._speak)


class LeaseWorld:
    """Everything, driven by one seed."""

    def __init__(self, seed: int, mutant: LeaseMutant = UNCHANGED) -> None:
        """Prepare all nodes."""
        self.world = SimWorld(seed)
        chance = self.world.random
        self.faults = PortFaults(
            loss=chance.uniform(0, 0.2), repeat=chance.uniform(0, 0.2), late=chance.uniform(0, 0.2)
        )
        self.faults.late_seconds = FREEZE_SECONDS
        self.server = NameServer(self.world)
        port = LossyPort(self.world, self.faults)
        shared = NodeFolder("shared")
        folders = {"first": shared, "copy": shared, "other": NodeFolder("other")}
        self.nodes = [LeaseNode(self.world, name, of, self.server, port, mutant) for name, of in folders.items()]
        self._stormy = True

    def storm(self) -> None:
        """Faults of all kinds at once."""
        plan_pair(self.world, self.nodes, STORM_STEPS, FREEZE_SECONDS)
        for node in self.nodes:
            self.world.after(self.world.random.uniform(0.0, TTL_SECONDS), node.start)
        self.server.start()
        self._weather()
        self.world.run(STORM_SECONDS)

    def peace(self) -> None:
        """No faults but steps of the clock; the copy of the folder is gone."""
        self._stormy, self.server.away = False, False
        self.faults.end()
        copy = self.nodes[1]
        copy.retired = True
        copy.kill()
        self.world.run(FREEZE_SECONDS + _RESTART_SECONDS + 2 * TTL_SECONDS)
        expired = self.server.expirations
        for _ in range(8):
            self.world.step_wall(self.world.random.choice((_HOUR_MS, -_HOUR_MS)))
            self.world.run(TICK_SECONDS)
            self._one_holds()
        if self.server.expirations != expired:
            raise BrokenRuleError("I21: a lease ended early")

    def handover(self) -> None:
        """The holder goes for good: the other has the name after one lease and a tick."""
        (holder,) = [node for node in self.nodes if node.alive and node.lease.state is LeaseState.HELD]
        holder.retired = True
        holder.kill()
        self.world.run(TTL_SECONDS + TICK_SECONDS + 4 * self.faults.usual_seconds)
        self._one_holds()

    def _one_holds(self) -> None:
        states = [node.lease.state for node in self.nodes if node.alive]
        if states.count(LeaseState.HELD) != 1 or not set(states) <= {LeaseState.HELD, LeaseState.TAKEN}:
            raise BrokenRuleError(f"I21: the name is not held by exactly one: {states}")

    def _weather(self) -> None:
        if not self._stormy:
            return
        chance = self.world.random
        self.server.away = chance.random() < 0.1
        if chance.random() < 0.02:
            self.server.forget()
            for node in self.nodes:
                node.run(node.reconnected)
        if chance.random() < 0.2:
            self.world.step_wall(chance.choice((_HOUR_MS, -_HOUR_MS)))
        self.world.after(chance.uniform(0.0, 2 * TICK_SECONDS), self._weather)


def run_lease(seed: int, mutant: LeaseMutant = UNCHANGED) -> LeaseWorld:
    """One seed from the storm to the handover."""
    world = LeaseWorld(seed, mutant)
    world.storm()
    world.peace()
    world.handover()
    return world
