"""A worker as a simulated process: lives of a fake worker behind a lossy port, with bytes that land some time later.

A killed life leaves requests to a disk in the kernel: they land, or not, before the next life can begin, which needs
the locks that those requests keep. Copies that the process makes itself end with it.
Threading: one thread.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from blockyard.core.errors import BlockyardError
from blockyard.core.jobs import JobId, destination_tier
from blockyard.core.vocabulary import Epoch, Generation, ItemStatus, JobKind, JobSeq, Tier, WorkerRole
from blockyard.testing.fake_slots import FakeEngineMemory, FakeStore, FakeTier
from blockyard.testing.fake_worker import FakeWorker
from blockyard.testing.sim.ports import LossyPort
from blockyard.testing.sim.world import Process, Section, SimWorld
from blockyard.testing.sim.write_oracle import WriteOracle
from blockyard.wire import worker_channel as channel

KERNEL_SECONDS: Final = 0.4
"""Longest time that a request to a disk takes, also after the death of who made it."""
_PUSH_SECONDS: Final = 0.5
_HANDS: Final = 1
_FAILURES: Final = (ItemStatus.IO_ERROR, ItemStatus.NO_SPACE, ItemStatus.TIMEOUT, ItemStatus.UNKNOWN)
_OF_THE_DISK: Final = frozenset({JobKind.G2_G3, JobKind.G3_G2})

AnswerT = TypeVar("AnswerT")
WorkerLife = Callable[..., FakeWorker]
"""Makes one life; takes what ``FakeWorker`` takes."""


class SimWorker(Process):
    """An offload-worker or remote-tier."""

    def __init__(
        self,
        world: SimWorld,
        role: WorkerRole,
        tiers: dict[Tier, FakeTier],
        store: FakeStore,
        port: LossyPort,
        oracle: WriteOracle,
        make_life: WorkerLife = FakeWorker,
    ) -> None:
        """Prepare; the bytes outlive every life."""
        super().__init__(world, role.label)
        self.role: Final = role
        self.port: Final = port
        self.inner: FakeWorker
        """The present life, or the last one."""
        self.on_result: Callable[[channel.JobResult], Section] = lambda result: lambda: None
        """What the block-manager does with a result that arrives."""
        self.manager: Process | None = None
        self.failing = 0.0
        """Part of the items that fail before anything is touched."""
        self.most_remembered = 0
        self.life_of_manager = 0
        """Epoch of the block-manager that this life serves; 0 before the first attach."""
        self._tiers = tiers
        self._store = store
        self._oracle = oracle
        self._make_life = make_life
        self._hands = 0

    # --- lives --------------------------------------------------------------------------------------------------------
    def started(self) -> None:
        """A life that is attached to nobody and maps no engine."""
        mapped: dict[int, FakeEngineMemory] = {}
        self._hands = self.life_of_manager = 0
        epoch = 1_000 * (self.role + 1) + self.life
        self.inner = self._make_life(self.role, epoch, self.world.clock, dict(self._tiers), mapped, self._store)
        self.inner.on_landing = partial(self._landing, self.inner)
        self.inner.fault = self._fault
        self.after(_PUSH_SECONDS, self._push_again)

    def died(self) -> None:
        """What it copied itself is over; requests that lie in the kernel land or not."""
        for job in self.inner.running:
            if self.inner.kind(job) in _OF_THE_DISK and self.world.random.random() < 0.5:
                self.world.after(self.world.random.uniform(0.0, KERNEL_SECONDS), partial(self.inner.finish, job))

    # --- messages -----------------------------------------------------------------------------------------------------
    def ask(self, sender: Process, question: Callable[[FakeWorker], AnswerT], told: Callable[[AnswerT], None]) -> None:
        """Send a question; what it is answered reaches the sender perhaps, some time. Errors are not answered."""

        def serve() -> None:
            try:
                answer = question(self.inner)
            except BlockyardError:
                return
            self.port.send(sender, lambda: told(answer))
            self.most_remembered = max(self.most_remembered, self.inner.remembered)
            self._go_on()

        self.port.send(self, serve)

    def attach(self, worker: FakeWorker, request: channel.Attach) -> channel.Attached:
        """A question for ``ask``: serve this life of the block-manager."""
        answer = worker.attach(request)
        running = [job for job in worker.running if job.epoch < request.epoch]
        self._oracle.answered(self.role, request.epoch, running)
        self.life_of_manager = request.epoch
        return answer

    # --- work ---------------------------------------------------------------------------------------------------------
    def _go_on(self) -> None:
        while self._hands < _HANDS and (job := self.inner.start()) is not None:
            self._oracle.started(self.role, self.life, job)
            self._hands += 1
            self.after(self.world.random.uniform(0.0, KERNEL_SECONDS), partial(self._finish, job))

    def _finish(self, job: JobId) -> None:
        self.inner.finish(job)
        self._hands -= 1
        self._push()
        self._go_on()

    def _push(self) -> None:
        for result in self.inner.results():
            if self.manager is not None:
                self.port.send(self.manager, self.on_result(result))

    def _push_again(self) -> None:
        self._push()
        self.after(_PUSH_SECONDS, self._push_again)

    def _fault(self, job: channel.Job, item: int) -> ItemStatus | None:
        return self.world.random.choice(_FAILURES) if self.world.random.random() < self.failing else None

    def _landing(self, life: FakeWorker, job: channel.Job, slot: int, generation: Generation) -> None:
        tier = destination_tier(job.kind)
        if tier is None:
            return
        if life.tiers[tier] is self._tiers[tier]:  # else it is an arena that nobody reads any more
            self._oracle.lands(tier, slot, job.epoch, generation)
        if life is self.inner and self.alive:
            self._oracle.lands_for(self.role, JobId(Epoch(job.epoch), JobSeq(job.seq)))
