"""Worker side of the job channel: serves one block-manager, hands jobs to an executor, pushes results until acked.

Every command but attach is refused on a connection that is not the attached one. A higher epoch takes over: queued
jobs of older lives are dropped, running ones get a moment to end and are then named in the answer. Results are pushed
when a job ends, again every second, and all at once after a re-attach, until they are acknowledged.
Invariants: what may run, and what must not, is decided by the ``JobLedger``; at most ``concurrency`` jobs run, loads
first, and stores never take the last place.
Threading: one event loop; permission to issue (``JobControl``) may be asked from any thread.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from blockyard.core.clock import Clock, SystemClock
from blockyard.core.errors import (
    BlockyardError,
    FencedError,
    NotAttachedError,
    PeerClosedError,
    RequestError,
    UnavailableError,
    UnsupportedVersionError,
)
from blockyard.core.job_ledger import Admission, AttachKind, JobLedger, JobOutcome, JobTicket
from blockyard.core.jobs import JobId, JobPhase, Refusal, destination_tier
from blockyard.core.vocabulary import Epoch, ItemStatus, JobKind, Lane, Tier, WorkerRole
from blockyard.runtime.current_trace import begin_work, current_trace
from blockyard.runtime.job_columns import check_job, destination_slots, ticket_of
from blockyard.runtime.job_control import LedgerControl
from blockyard.runtime.job_executor import AttachAnswer, JobControl, JobExecutor, WorkerMeter
from blockyard.runtime.rpc.server import RpcServer
from blockyard.runtime.rpc.session import RpcSession
from blockyard.runtime.spans import NO_TRACER, Tracer
from blockyard.runtime.transfer_spans import describe_end, transfer_span
from blockyard.runtime.worker_mappings import WorkerMappings
from blockyard.wire import worker_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION

__all__ = ["AttachAnswer", "JobControl", "JobExecutor", "WorkerMeter", "WorkerServer"]

BUSY_RETRY_MS: Final = 20
MAX_INVENTORY_RECORDS: Final = 8_192
_G1_KINDS: Final = (JobKind.G1_G2, JobKind.G2_G1)
_RESEND_CHECKS: Final = 4
_log: Final = logging.getLogger(__name__)

Answer = channel.Reply | tuple[channel.Reply, list[int]]


class WorkerServer:
    """Serves the job channel; use as ``async with WorkerServer(...)``, whose body lasts as long as the service."""

    def __init__(
        self,
        role: WorkerRole,
        ledger: JobLedger[channel.Job],
        executor: JobExecutor,
        path: Path,
        *,
        clock: Clock | None = None,
        concurrency: int = 4,
        attach_grace_seconds: float = 0.25,
        meter: WorkerMeter | None = None,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """Prepare; nothing is bound before the ``async with``.

        Args:
            role: which worker this is.
            ledger: jobs of this life.
            executor: the data plane.
            path: socket of the channel.
            clock: time for deadlines and repeats.
            concurrency: jobs that run at a time, one of which is always a load (where it is more than one).
            attach_grace_seconds: how long a new life of the block-manager waits for running jobs of older ones to end
                before they are named in its answer.
            meter: told of every job that ended.
            tracer: makes the span of each job that runs.
        """
        self._role = role
        self._ledger = ledger
        self._executor = executor
        self._path = path
        self._clock = clock or SystemClock()
        self._concurrency = concurrency
        self._attach_grace_seconds = attach_grace_seconds
        self._meter = meter
        self._tracer = tracer
        self._session: RpcSession | None = None
        self._mappings = WorkerMappings(executor, self._uses_mapping)
        self._attaching = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Bind and serve.

        Raises:
            StartupError: the socket cannot be bound.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._group)
            stack.callback(self._cancel_tasks)
            await stack.enter_async_context(RpcServer(self._path, channel.Request, self._handle))
            self._spawn(self._resend())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving; jobs that run are abandoned, their end is the end of this life."""
        await self._stack.__aexit__(kind, error, trace)

    @property
    def attached(self) -> bool:
        """True where a block-manager is attached and its connection is open."""
        return self._session is not None and not self._session.closed.is_set()

    # --- requests -----------------------------------------------------------------------------------------------
    async def _handle(self, session: RpcSession, request: channel.Request, fds: list[int]) -> Answer:
        if isinstance(request, channel.Attach):
            return await self._attach(session, request, fds)
        if session is not self._session:
            raise NotAttachedError("this connection is not the attached one")
        match request:
            case channel.Submit():
                return self._submit(request)
            case channel.Ack():
                self._ledger.ack(Epoch(request.epoch), request.seqs, request.settled_below)
                return channel.WorkerDone()
            case channel.Cancel():
                states = self._ledger.cancel(Epoch(request.epoch), request.seqs)
                self._push_due()
                await self._jobs_ended()
                return _job_states(states)
            case channel.Poll():
                return _job_states(self._ledger.poll(Epoch(request.epoch), request.seqs))
            case channel.Inventory():
                return await self._inventory(request)
            case channel.MapEngine():
                await self._mappings.add(request, fds)
                return channel.WorkerDone()
            case channel.UnmapEngine():
                await self._mappings.remove(request)
                return channel.WorkerDone()
            case channel.Find():
                return await self._executor.find(request)

    async def _attach(self, session: RpcSession, request: channel.Attach, fds: list[int]) -> Answer:
        if request.version != PROTOCOL_VERSION:
            raise UnsupportedVersionError(theirs=request.version, ours=PROTOCOL_VERSION)
        if request.epoch < 1 or len(fds) != (request.arena is not None):
            raise RequestError("attach names an epoch, and brings a descriptor exactly where it names an arena")
        async with self._attaching:
            if session.closed.is_set():
                # It may have ended long before its turn came, and must not displace who is served now.
                raise PeerClosedError("the connection ended before it was attached")
            epoch = Epoch(request.epoch)
            kind = self._ledger.attach(
                request.instance, epoch, incumbent_connected=self.attached and self._session is not session
            )
            if kind is AttachKind.TAKEOVER:
                self._take_over(request, session)
                await self._drain(epoch)
            answer = await self._executor.attach(request, fds.pop() if fds else None)
            before, self._session = self._session, session
            if before is not None and before is not session:
                before.close(NotAttachedError("another connection has attached"))
            self._ledger.drop_ended(epoch)
            # After the answer, which is sent before anything that is scheduled here.
            asyncio.get_running_loop().call_soon(self._push_due, True)
            return self._attached(answer, epoch), [] if answer.arena_fd is None else [answer.arena_fd]

    def _attached(self, answer: AttachAnswer, epoch: Epoch) -> channel.Attached:
        live = {ticket.job: ticket.payload for ticket in self._ledger.live()}
        running = tuple(
            channel.RunningJob(
                epoch=job.epoch, seq=job.seq, kind=live[job].kind, destinations=live[job].items.dst_index
            )
            for job in self._ledger.running(below=epoch)
        )
        return channel.Attached(
            version=PROTOCOL_VERSION,
            role=self._role,
            worker_epoch=self._ledger.worker_epoch,
            mover=answer.mover,
            arena=answer.arena,
            slabs=answer.slabs,
            running=running,
        )

    def _take_over(self, request: channel.Attach, session: RpcSession) -> None:
        _log.info("attached by %s in epoch %d", request.instance, request.epoch)
        before, self._session = self._session, None
        if before is not None and before is not session:
            before.close(FencedError("a newer life has attached", epoch=request.epoch))
        for mapping in self._mappings.void():
            self._spawn(self._leave(mapping))

    async def _leave(self, mapping: int) -> None:
        try:
            await self._mappings.leave(mapping)
        except BlockyardError as error:
            _log.warning("mapping %d of an older life is not unmapped: %s", mapping, error)

    async def _drain(self, epoch: Epoch) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._attach_grace_seconds), self._changed:
                await self._changed.wait_for(lambda: not self._ledger.running(below=epoch))

    async def _inventory(self, request: channel.Inventory) -> channel.Reply:
        if request.tier not in (Tier.G2, Tier.G3) or request.cursor < 0:
            raise RequestError("only slots of G2 and G3 are listed", tier=request.tier, cursor=request.cursor)
        tier = Tier(request.tier)
        busy: set[int] = set()
        for ticket in self._ledger.live():
            if destination_tier(ticket.kind, ticket.payload.free_tier) is tier:
                busy |= destination_slots(ticket.payload)
        records = min(max(request.max_records, 1), MAX_INVENTORY_RECORDS)
        return await self._executor.inventory(tier, request.cursor, records, frozenset(busy))

    # --- jobs ---------------------------------------------------------------------------------------------------
    def _submit(self, request: channel.Submit) -> channel.Reply:
        refusal = self._refusal(request.job)
        answer = self._ledger.submit(ticket_of(request.job, current_trace()), request.settled_below, refusal=refusal)
        if isinstance(answer, Refusal):
            return channel.Refused(reason=answer)
        if answer is Admission.BUSY:
            return channel.Busy(retry_ms=BUSY_RETRY_MS)
        self._start_jobs()
        return channel.Accepted()

    def _refusal(self, job: channel.Job) -> Refusal | None:
        try:
            check_job(job)
        except RequestError as error:
            _log.warning("job %d:%d refused: %s", job.epoch, job.seq, error)
            return Refusal.BAD_REQUEST
        if job.kind in _G1_KINDS and job.mapping not in self._mappings:
            return Refusal.NO_MAPPING
        return None

    def _start_jobs(self) -> None:
        while self._running < self._concurrency:
            # A load must not wait for stores: they never take the last place (where there are at least two).
            last_place = 1 < self._concurrency == self._running + 1
            ticket = self._ledger.start(Lane.LOAD if last_place else Lane.STORE)
            if ticket is None:
                return
            self._running += 1
            self._spawn(self._execute(ticket))

    async def _execute(self, ticket: JobTicket[channel.Job]) -> None:
        control = LedgerControl(self._ledger, ticket, self._clock)
        started = self._clock.monotonic()
        waited_seconds = ticket.ttl_ms / 1_000 - control.remaining_seconds
        with transfer_span(self._tracer, ticket, waited_seconds) as span:
            # In any case: the task was made in the context of whoever had room for it.
            begin_work(span.traceparent)
            statuses = await self._run(ticket, control)
            describe_end(span, ticket.payload, statuses)
        self._ledger.finish(ticket.job, bytes(statuses), index_pending=control.index_pending)
        if self._meter is not None:
            self._meter.job_ended(ticket.payload, statuses, self._clock.monotonic() - started)
        self._running -= 1
        self._start_jobs()
        self._push_due()
        await self._jobs_ended()

    async def _run(self, ticket: JobTicket[channel.Job], control: LedgerControl) -> list[ItemStatus]:
        try:
            return list(await self._executor.run(ticket.payload, control))
        except BlockyardError as error:
            away = isinstance(error, UnavailableError)
            # A server that is away is told where it is noticed, not for every job that needed it.
            _log.log(
                logging.DEBUG if away else logging.WARNING,
                "job %d:%d failed: %s",
                ticket.job.epoch,
                ticket.job.seq,
                error,
            )
            return [ItemStatus.UNKNOWN if away else ItemStatus.IO_ERROR] * ticket.items

    # --- results ------------------------------------------------------------------------------------------------
    def _push_due(self, everything: bool = False) -> None:
        session = self._session
        if session is None or session.closed.is_set():
            return
        for outcome in self._ledger.results_due(self._clock.monotonic(), everything=everything):
            try:
                session.push(self._result(outcome))
            except PeerClosedError:
                return

    def _result(self, outcome: JobOutcome) -> channel.JobResult:
        return channel.JobResult(
            epoch=outcome.job.epoch,
            seq=outcome.job.seq,
            worker_epoch=self._ledger.worker_epoch,
            end=outcome.end,
            status=outcome.status,
            index_pending=outcome.index_pending,
        )

    async def _resend(self) -> None:
        while True:
            await asyncio.sleep(self._ledger.resend_seconds / _RESEND_CHECKS)
            self._push_due()

    # --- tasks --------------------------------------------------------------------------------------------------
    async def _jobs_ended(self) -> None:
        async with self._changed:
            self._changed.notify_all()
        await self._mappings.jobs_changed()

    def _uses_mapping(self, mapping: int) -> bool:
        return any(ticket.payload.mapping == mapping for ticket in self._ledger.live())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()


def _job_states(states: list[tuple[JobId, JobPhase]]) -> channel.JobStates:
    return channel.JobStates(
        states=tuple(channel.JobState(epoch=job.epoch, seq=job.seq, state=phase) for job, phase in states)
    )
