"""Job table and job ledger over a channel that loses, repeats, delays and reorders, with restarts on either side.

Slots stand for G2 slots with headers; a write lands some time after it was permitted. What is checked on every landing
and at the end: a write lands only under the current grant of its slot, no job of an older life has an effect after the
answer to attach unless it was named there, every job settles once, and memory stays bounded.
"""

from dataclasses import dataclass, field
from functools import partial

import pytest

from blockyard.core.errors import BlockyardError, FencedError, NotAttachedError, UnavailableError
from blockyard.core.job_ledger import Admission, AttachKind, JobLedger, JobOutcome, JobTicket
from blockyard.core.job_table import JobLimits, JobTable, JobVerb
from blockyard.core.jobs import JobId, JobPhase, Refusal
from blockyard.core.vocabulary import Epoch, Generation, ItemStatus, JobKind, JobSeq, Lane, WorkerRole
from blockyard.testing.faulty_channel import Faults, FaultyChannel, VirtualTime

OW = WorkerRole.OFFLOAD_WORKER
SLOTS = 12
LEDGER_LIMIT = 8
TICK = 0.05


@dataclass(frozen=True, slots=True)
class Order:
    """One job: the slots it writes and the generations granted to it."""

    slots: tuple[int, ...]
    generations: tuple[int, ...]


@dataclass(slots=True)
class Oracle:
    """What really happened; sees both sides."""

    headers: list[int] = field(default_factory=lambda: [0] * SLOTS)
    grants: dict[int, JobId] = field(default_factory=dict)
    granting_epoch: int = 0
    answered_epoch: int = 0
    named_running: set[JobId] = field(default_factory=set)
    started: set[JobId] = field(default_factory=set)
    settled: dict[JobId, int] = field(default_factory=dict)
    landed: int = 0

    def granted(self, job: JobId, slots: tuple[int, ...]) -> None:
        if job.epoch >= self.granting_epoch:
            self.granting_epoch = job.epoch
            self.grants.update(dict.fromkeys(slots, job))

    def lands(self, job: JobId, slot: int, generation: int) -> None:
        assert self.grants[slot] == job, "a write landed in a slot that was granted to another job"
        assert job.epoch >= self.answered_epoch or job in self.named_running, "effect of a superseded life"
        assert generation > self.headers[slot]
        self.headers[slot] = generation
        self.landed += 1


class Worker:
    """Lives of a worker: ledger, executor with two hands, results repeated until acknowledged."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.life = 0
        self.ledger: JobLedger[Order]
        self.hands = 0
        self.restart()

    def restart(self) -> None:
        self.life += 1  # what the old life had in the air is gone with it: death is proven before the next one starts
        self.hands = 0
        self.ledger = JobLedger(Epoch(100 + self.life), self.world.time.clock, limit=LEDGER_LIMIT)

    def attach(self, manager: "Manager", attempt: int) -> None:
        try:
            kind = self.ledger.attach("node", manager.table.epoch, incumbent_connected=False)
        except FencedError:
            return
        oracle = self.world.oracle
        if kind is AttachKind.TAKEOVER:
            self.ledger.drop_ended(manager.table.epoch)
            oracle.answered_epoch = manager.table.epoch
            oracle.named_running = set(self.ledger.running(below=manager.table.epoch))
        running = self.ledger.running(below=manager.table.epoch)
        slots = {job: self.order_of(job).slots for job in running}
        epoch = self.ledger.worker_epoch
        self.world.channel.carry(lambda: manager.on_attached(attempt, epoch, slots))
        self.push(everything=True)

    def order_of(self, job: JobId) -> Order:
        return next(ticket.payload for ticket in self.ledger.live() if ticket.job == job)

    def submit(self, manager: "Manager", ticket: JobTicket[Order], settled_below: int) -> None:
        before = self.ledger.remembered
        unmapped = self.world.stormy and self.world.time.random.random() < 0.05
        refusal = Refusal.NO_MAPPING if unmapped else None
        try:
            answer = self.ledger.submit(ticket, settled_below, refusal=refusal)
        except NotAttachedError:
            return
        if ticket.job.epoch < self.world.oracle.answered_epoch or ticket.job.seq < settled_below:
            assert isinstance(answer, Refusal)
            assert self.ledger.remembered <= before
        seq = ticket.job.seq
        if isinstance(answer, Refusal):
            self.world.channel.carry(lambda: manager.on_refused(seq, answer))
        elif answer is Admission.BUSY:
            self.world.channel.carry(lambda: manager.table.busy(seq, 20))
        else:
            self.world.channel.carry(lambda: manager.table.accepted(seq))
            self.start_jobs()

    def ask(self, manager: "Manager", verb: JobVerb, seq: JobSeq) -> None:
        command = self.ledger.cancel if verb is JobVerb.CANCEL else self.ledger.poll
        try:
            states = command(manager.table.epoch, [seq])
        except BlockyardError:
            return
        if manager.table.epoch < (self.world.oracle.answered_epoch):
            return  # the session of a superseded life gets no answer
        for job, phase in states:
            self.world.channel.carry(partial(manager.on_state, job.seq, phase))

    def ack(self, epoch: Epoch, seqs: list[JobSeq], settled_below: int) -> None:
        try:
            self.ledger.ack(epoch, seqs, settled_below)
        except BlockyardError:
            return

    def start_jobs(self) -> None:
        while self.hands < 2 and (ticket := self.ledger.start()) is not None:
            assert ticket.job not in self.world.oracle.started, "a job started twice"
            self.world.oracle.started.add(ticket.job)
            self.hands += 1
            self.issue(ticket, 0, bytearray(), self.life)

    def issue(self, ticket: JobTicket[Order], item: int, done: bytearray, life: int) -> None:
        """Items one after the other; each is permitted, then lands later."""
        if life != self.life:
            return
        if item == ticket.items:
            self.hands -= 1
            self.ledger.finish(ticket.job, bytes(done))
            self.start_jobs()
            self.push()
            return
        slot, generation = ticket.payload.slots[item], ticket.payload.generations[item]
        header = Generation(self.world.oracle.headers[slot])
        status = self.ledger.may_issue(ticket.job, Generation(generation), header, self.world.time.now)
        if status is ItemStatus.OK:
            assert ticket.job.epoch >= self.world.oracle.answered_epoch, "permission for a superseded life"
        delay = self.world.time.random.uniform(0.0, 0.4)

        def land() -> None:
            if life != self.life:
                return
            if status is ItemStatus.OK:
                self.world.oracle.lands(ticket.job, slot, generation)
            done.append(status)
            self.issue(ticket, item + 1, done, life)

        self.world.time.after(delay, land)

    def push(self, *, everything: bool = False) -> None:
        manager, epoch = self.world.manager, self.ledger.worker_epoch
        for outcome in self.ledger.results_due(self.world.time.now, everything=everything):
            self.world.channel.carry(partial(manager.on_result, outcome, epoch))

    def tick(self) -> None:
        self.push()
        lives = [self.world.manager, *self.world.zombies]
        assert self.ledger.remembered <= LEDGER_LIMIT + 2 + max(life.issued for life in lives)


class Manager:
    """One life of a block-manager: grants slots, submits, commits."""

    def __init__(self, world: "World", epoch: int) -> None:
        self.world = world
        limits = JobLimits(unsettled_limit=LEDGER_LIMIT + 4)
        self.table = JobTable(Epoch(epoch), world.time.clock, limits)
        self.orders: dict[JobSeq, Order] = {}
        self.tickets: dict[JobSeq, JobTicket[Order]] = {}
        self.generations: dict[int, int] = {}
        self.taken: set[int] = set()
        self.inherited: dict[JobId, tuple[int, ...]] = {}
        self.attempt = 0
        self.attempted_at = -1.0
        self.ready = False
        self.issued = 0

    # --- attach
    def reconnect(self) -> None:
        self.ready = False
        self.table.disconnected(OW)
        self.attempt += 1
        self.attempted_at = self.world.time.now
        attempt, worker = self.attempt, self.world.worker
        self.world.channel.carry(lambda: worker.attach(self, attempt))

    def on_attached(self, attempt: int, worker_epoch: Epoch, running: dict[JobId, tuple[int, ...]]) -> None:
        if attempt != self.attempt or self.ready or self is not self.world.manager:
            return  # a superseded life goes on sending what it has, but the lock of its folder keeps it from attaching
        try:
            lost = self.table.attached(OW, worker_epoch, running)
        except UnavailableError:
            return
        for job in lost.inherited:
            self.inherited.pop(job, None)
        self.inherited = dict(running)
        for seq in lost.jobs:
            self.end(seq)
        for slot in range(SLOTS):
            self.generations[slot] = max(self.generations.get(slot, 0), self.world.oracle.headers[slot])
        self.ready = True

    # --- answers
    def on_refused(self, seq: JobSeq, reason: Refusal) -> None:
        if self.table.refused(seq, reason):
            self.end(seq)

    def on_state(self, seq: JobSeq, phase: JobPhase) -> None:
        if self.table.state_told(seq, phase):
            self.end(seq)

    def on_result(self, outcome: JobOutcome, worker_epoch: Epoch) -> None:
        if not self.ready:
            return  # not attached: nothing is acknowledged, so it comes again
        job = outcome.job
        if job.epoch == self.table.epoch:
            if self.table.settle(job.seq, worker_epoch):
                self.commit(job, outcome)
                self.end(job.seq)
        elif self.table.settle_inherited(job, worker_epoch):
            for slot in self.inherited.pop(job, ()):
                self.generations[slot] = max(self.generations[slot], self.world.oracle.headers[slot])
        worker, below = self.world.worker, self.table.settled_below
        self.world.channel.carry(lambda: worker.ack(job.epoch, [job.seq], below))

    def commit(self, job: JobId, outcome: JobOutcome) -> None:
        if self.table.epoch < self.world.oracle.answered_epoch:
            return  # superseded without knowing it: what it believes is checked by every reader's header comparison
        order = self.orders[job.seq]
        for slot, generation, status in zip(order.slots, order.generations, outcome.status, strict=True):
            if status == ItemStatus.OK:
                assert self.world.oracle.headers[slot] == generation, "committed bytes are not there"

    def end(self, seq: JobSeq) -> None:
        order = self.orders.pop(seq)
        self.tickets.pop(seq)
        self.taken.difference_update(order.slots)
        job = JobId(self.table.epoch, seq)
        self.world.oracle.settled[job] = self.world.oracle.settled.get(job, 0) + 1

    # --- work
    def plan(self) -> None:
        blocked = self.taken.union(*self.inherited.values())
        free = [slot for slot in range(SLOTS) if slot not in blocked]
        chance = self.world.time.random
        lane = chance.choice(list(Lane))
        if not self.ready or not free or not self.table.can_plan(OW, lane):
            return
        slots = tuple(chance.sample(free, min(len(free), chance.randint(1, 3))))
        ttl_ms = chance.choice((100, 600, 4_000))
        seq = self.table.plan(OW, JobKind.G3_G2, lane, ttl_ms)
        self.issued += 1
        for slot in slots:
            self.generations[slot] += 1
        order = Order(slots, tuple(self.generations[slot] for slot in slots))
        job = JobId(self.table.epoch, seq)
        facts = self.table.facts(seq)
        assert facts is not None
        self.orders[seq] = order
        self.taken.update(slots)
        self.world.oracle.granted(job, slots)
        self.tickets[seq] = JobTicket(
            job=job,
            worker_epoch=facts.worker_epoch,
            kind=facts.kind,
            lane=facts.lane,
            ttl_ms=ttl_ms,
            items=len(slots),
            payload=order,
        )
        self.send(seq)

    def send(self, seq: JobSeq) -> None:
        self.table.sent(seq)
        ticket, worker, below = self.tickets[seq], self.world.worker, self.table.settled_below
        self.world.channel.carry(lambda: worker.submit(self, ticket, below))

    def tick(self) -> None:
        if not self.ready and self.world.time.now - self.attempted_at > 0.5 and self is self.world.manager:
            self.reconnect()
        worker = self.world.worker
        for action in self.table.due(self.world.time.now):
            if action.verb is JobVerb.RESEND:
                self.send(action.seq)
            else:
                self.world.channel.carry(partial(worker.ask, self, action.verb, action.seq))


class World:
    """Everything, driven by one seed."""

    def __init__(self, seed: int) -> None:
        self.time = VirtualTime(seed)
        chance = self.time.random
        self.faults = Faults(loss=chance.uniform(0, 0.3), repeat=chance.uniform(0, 0.4), late=chance.uniform(0, 0.3))
        self.channel = FaultyChannel(self.time, self.faults)
        self.oracle = Oracle()
        self.worker = Worker(self)
        self.epoch = 1
        self.stormy = True
        self.manager = Manager(self, self.epoch)
        self.zombies: list[Manager] = []
        self.beat()

    def beat(self) -> None:
        chance = self.time.random
        if self.stormy and chance.random() < 0.004:
            self.worker.restart()
        if self.stormy and chance.random() < 0.004:
            self.zombies.append(self.manager)  # it may have been frozen: it goes on when it thaws
            self.epoch += 1
            self.manager = Manager(self, self.epoch)
        if self.stormy and chance.random() < 0.01:
            self.manager.reconnect()
        if self.stormy and chance.random() < 0.1 and self.manager.orders:
            self.manager.table.cancel(chance.choice(list(self.manager.orders)))
        for manager in [*self.zombies[-1:], self.manager]:
            if self.stormy and chance.random() < 0.5:
                manager.plan()
            manager.tick()
        self.worker.tick()
        self.time.after(TICK, self.beat)


@pytest.mark.parametrize("seed", range(30))
def test_jobs_settle_once_and_write_only_under_their_grant(seed: int) -> None:
    world = World(seed)
    world.time.run_until(world.time.now + 60.0)
    world.stormy = False
    world.zombies.clear()
    world.faults.loss = world.faults.late = world.faults.repeat = 0.0
    world.manager.reconnect()
    world.time.run_until(world.time.now + 30.0)
    world.manager.plan()  # carries the news that everything before it is settled
    world.time.run_until(world.time.now + 10.0)

    assert world.oracle.landed > 50, "the storm left room for work"
    assert set(world.oracle.settled.values()) == {1}
    table, ledger = world.manager.table, world.worker.ledger
    assert world.manager.ready
    assert len(table) == 0
    assert not table.inherited(OW)
    assert table.settled_below == world.manager.issued + 1
    assert not list(ledger.live())
    assert not ledger.results_due(world.time.now, everything=True)
    assert ledger.remembered == 0


def test_same_seed_gives_the_same_run() -> None:
    landed = []
    for _ in range(2):
        world = World(7)
        world.time.run_until(world.time.now + 10.0)
        landed.append((world.oracle.landed, dict(world.oracle.settled)))
    assert landed[0] == landed[1]
