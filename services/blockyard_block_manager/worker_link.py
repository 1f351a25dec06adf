"""The channel to one worker: connect, attach, list, then carry jobs out and results in, for ever.

::

    connect ──► attach (arena travels along) ──► map engines ──► inventory, if needed ──► submit, ack, cancel, poll
       ▲                                                                                        │ channel ended
       └──────────────────────────── backoff ◄──────────────────────────────────────────────────┘

All meaning lies in the core; this only moves messages. Results are taken from a queue by the task of the link, never
inside the receiving callback, so that an error in a decision ends the service instead of just a connection.
Invariants: every result is acknowledged, known or not; while nothing is connected the core knows the worker as away.
Threading: one event loop; one task per link.
"""

import asyncio
import gc
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from blockyard.core.errors import (
    BlockyardError,
    MalformedFrameError,
    PeerClosedError,
    UnavailableError,
)
from blockyard.core.job_table import JobAction, JobVerb
from blockyard.core.jobs import JobPhase, Refusal
from blockyard.core.vocabulary import JobSeq, Tier, WorkerRole
from blockyard.runtime.backoff import Backoff
from blockyard.runtime.current_trace import begin_work
from blockyard.runtime.logs import get_logger
from blockyard.runtime.rpc.client import RpcClient
from blockyard.runtime.rpc.frame_buffer import close_descriptors
from blockyard.tiers.inventory_pages import InventoryPages
from blockyard.wire import worker_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard_block_manager.arena_keeper import ArenaKeeper
from blockyard_block_manager.decisions import deciding
from blockyard_block_manager.inventory_match import Listing
from blockyard_block_manager.node_core import NodeCore

ATTACH_SECONDS: Final = 30.0
"""A worker lets running jobs of an earlier life end for a moment before it answers."""
CALL_SECONDS: Final = 5.0
PAGE_SECONDS: Final = 120.0
"""A page of the inventory is a moment's work for the worker; on a machine that gives it none it may take long, and
giving it up would lose all pages before it. Each page has this time anew."""
UNMAP_SECONDS: Final = 60.0
"""A mapping is given up only when its last job has ended."""
_COMPARED: Final = object()
_log: Final = get_logger(__name__)

ReplyT = TypeVar("ReplyT")
Rpc = RpcClient[channel.Reply, channel.Push]


class WorkerLink:
    """One worker's channel; ``run`` is its task."""

    def __init__(self, role: WorkerRole, socket: Path, core: NodeCore, arena: ArenaKeeper) -> None:
        """Prepare; nothing is connected before ``run``."""
        self.role: Final = role
        self._socket = socket
        self._core = core
        self._arena = arena
        self._rpc: Rpc | None = None
        self._attached = False
        self._give_up = b""
        self._results: deque[channel.JobResult] = deque()
        self._actions: deque[JobAction] = deque()
        self._wake = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self.on_attached: Callable[[bool], None] = lambda replaced: None
        """Called after each attach, before anything is submitted; says whether the arena was replaced."""

    @property
    def attached(self) -> bool:
        """Whether the worker has answered attach on the present connection."""
        return self._attached

    @property
    def connection(self) -> Rpc | None:
        """The present connection; None between two."""
        return self._rpc

    @property
    def answering(self) -> bool:
        """Whether the worker is attached and does not hang."""
        return self._attached and not self._core.desk.table.silent(self.role)

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    def act(self, action: JobAction) -> None:
        """Send a message that the job table says is due."""
        self._actions.append(action)
        self._wake.set()

    def reconnect(self) -> None:
        """End the present connection; the next one attaches anew."""
        if self._rpc is not None:
            self._rpc.close()

    def give_up_arena(self, arena: bytes) -> None:
        """Have the worker replace this arena, with the next attach. Idempotent."""
        if self._give_up != arena:
            self._give_up = arena
            self.reconnect()

    async def run(self) -> None:
        """Keep the channel up until cancelled."""
        backoff = Backoff(0.02, 1.0)
        while True:
            if self.role is WorkerRole.REMOTE_TIER:
                await self._arena.known.wait()
            try:
                await self._serve_connection(backoff)
            except BlockyardError as error:
                _log.debug("no channel to the worker", worker=self.role.label, reason=str(error))
            await asyncio.sleep(backoff.next_seconds())

    # --- calls of others ----------------------------------------------------------------------------------------------
    async def find(self, request: channel.Find, timeout_seconds: float, trace: TraceParent) -> channel.Found:
        """Ask the shared index of the remote tier.

        Raises:
            UnavailableError: it is away, or did not answer in time.
            BlockyardError: its typed error.
        """
        reply = await self._open_rpc().call(request, timeout_seconds=timeout_seconds, trace=trace)
        return _expect(reply, channel.Found)

    async def map_engine(self, request: channel.MapEngine, fds: Sequence[int]) -> None:
        """Map an engine's memory at the offload-worker; raises like ``find``."""
        await self._open_rpc().call(request, timeout_seconds=CALL_SECONDS, fds=fds)

    async def unmap_engine(self, request: channel.UnmapEngine) -> None:
        """Forget a mapping, once no job uses it; raises like ``find``."""
        await self._open_rpc().call(request, timeout_seconds=UNMAP_SECONDS)

    def _open_rpc(self) -> Rpc:
        if self._rpc is None or not self._attached:
            raise UnavailableError("the worker is away", worker=self.role.label)
        return self._rpc

    # --- one connection -----------------------------------------------------------------------------------------------
    async def _serve_connection(self, backoff: Backoff) -> None:
        rpc: Rpc = await RpcClient.connect(
            self._socket, channel.Reply, channel.Push, self._pushed, timeout_seconds=CALL_SECONDS
        )
        self._rpc = rpc
        self._results.clear()
        self._actions.clear()
        reason = "the channel has ended"
        try:
            await self._attach(rpc)
            backoff.reset()
            await self._work(rpc)
        except BlockyardError as error:
            reason = str(error)
            raise
        finally:
            rpc.close()
            self._rpc = None
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)
            if self._attached:
                self._attached = False
                with deciding():
                    self._core.worker_gone(self.role)
                _log.info("worker gone", worker=self.role.label, reason=reason)

    async def _attach(self, rpc: Rpc) -> None:
        profile = self._core.profile
        request = channel.Attach(
            version=PROTOCOL_VERSION,
            instance=profile.instance,
            epoch=profile.epoch,
            arena=self._arena.info,
            give_up=self._give_up,
        )
        reply, fds = await rpc.call_with_fds(request, timeout_seconds=ATTACH_SECONDS, fds=self._arena.fds)
        try:
            answer = self._take_arena(reply, fds)
        finally:
            close_descriptors(fds)
        with deciding():
            replaced = self._core.worker_attached(self.role, answer)
        self._attached = True
        _log.info("worker attached", worker=self.role.label, epoch=answer.worker_epoch, mover=answer.mover)
        if replaced:
            _log.warning("the arena was replaced: host memory starts empty", arena=_arena_id(answer))
        self.on_attached(replaced)

    def _take_arena(self, reply: channel.Reply, fds: list[int]) -> channel.Attached:
        answer = _expect(reply, channel.Attached)
        if answer.role is not self.role:
            raise MalformedFrameError("another worker answered", expected=self.role.label, answered=answer.role.label)
        if answer.arena is not None and fds:
            self._arena.keep(answer.arena, fds.pop())
        elif self.role is WorkerRole.OFFLOAD_WORKER:
            raise MalformedFrameError("the offload-worker hands over its arena", worker=self.role.label)
        return answer

    async def _work(self, rpc: Rpc) -> None:
        ended = asyncio.create_task(rpc.closed.wait())
        try:
            while not rpc.closed.is_set():
                self._wake.clear()
                self._take_results(rpc)
                if self.role is WorkerRole.OFFLOAD_WORKER and self._core.recovery.needs_listing:
                    await self._list(rpc)
                self._send_due(rpc)
                woken = asyncio.create_task(self._wake.wait())
                await asyncio.wait({woken, ended}, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
        finally:
            ended.cancel()

    # --- inventory ----------------------------------------------------------------------------------------------------
    async def _list(self, rpc: Rpc) -> None:
        listing = self._core.recovery.begin_listing()
        pages = {tier: await self._pages(rpc, tier, listing) for tier in listing.tiers}
        steps = self._core.compare(listing, pages)
        while True:
            with deciding():
                if next(steps, _COMPARED) is _COMPARED:
                    break
            await asyncio.sleep(0)
        # What the tables hold now stays: with a million slots each look of the collector at them takes 200 ms.
        gc.freeze()
        counts = {tier.label: len(found) for tier, found in pages.items()}
        _log.info("inventory compared", full=listing.full, **counts)

    async def _pages(self, rpc: Rpc, tier: Tier, listing: Listing) -> InventoryPages:
        pages = InventoryPages()
        cursor = 0
        while True:
            page = await self._page(rpc, channel.Inventory(tier=tier, cursor=cursor))
            pages.add(page.records)
            if page.end:
                return pages
            if page.cursor <= cursor:
                raise MalformedFrameError("the cursor of an inventory rises", tier=tier.label, cursor=cursor)
            cursor = page.cursor
            if not listing.full:
                # It decides about few slots, and nobody should wait for it.
                self._take_results(rpc)
                self._send_due(rpc)

    async def _page(self, rpc: Rpc, request: channel.Inventory) -> channel.InventoryPage:
        table = self._core.desk.table
        table.asked(self.role)
        reply = await rpc.call(request, timeout_seconds=PAGE_SECONDS)
        table.heard(self.role)
        return _expect(reply, channel.InventoryPage)

    # --- jobs and results ---------------------------------------------------------------------------------------------
    def _pushed(self, push: channel.Push) -> None:
        self._core.desk.table.heard(self.role)
        self._results.append(push)
        self._wake.set()

    def _send_due(self, rpc: Rpc) -> None:
        self._send_actions(rpc)
        self._send_jobs(rpc)

    def _take_results(self, rpc: Rpc) -> None:
        received: dict[int, list[int]] = {}
        while self._results:
            result = self._results.popleft()
            with deciding():
                self._core.result(result)
            received.setdefault(result.epoch, []).append(result.seq)
        for epoch, seqs in received.items():
            below = self._core.desk.table.settled_below
            self._spawn(self._ask(rpc, channel.Ack(epoch=epoch, seqs=tuple(seqs), settled_below=below)))

    def _send_jobs(self, rpc: Rpc) -> None:
        while (job := self._next_job()) is not None:
            self._submit(rpc, job)

    def _next_job(self) -> channel.Job | None:
        with deciding():  # orders whose time is over end here
            return self._core.desk.take(self.role)

    def _send_actions(self, rpc: Rpc) -> None:
        if rpc.unsent_bytes:
            # It does not read: what the table names again and again would pile up here, and then at the worker.
            self._actions.clear()
            return
        epoch = self._core.profile.epoch
        cancels: list[int] = []
        polls: list[int] = []
        while self._actions:
            action = self._actions.popleft()
            if action.verb is JobVerb.RESEND:
                job = self._core.desk.message(action.seq)
                if job is not None:
                    self._submit(rpc, job)
            else:
                (cancels if action.verb is JobVerb.CANCEL else polls).append(action.seq)
        if cancels:
            self._spawn(self._ask(rpc, channel.Cancel(epoch=epoch, seqs=tuple(cancels))))
        if polls:
            self._spawn(self._ask(rpc, channel.Poll(epoch=epoch, seqs=tuple(polls))))

    def _submit(self, rpc: Rpc, job: channel.Job) -> None:
        table = self._core.desk.table
        seq = JobSeq(job.seq)
        table.sent(seq)
        submit = channel.Submit(job=job, settled_below=table.settled_below)
        self._spawn(self._ask(rpc, submit, seq, self._core.desk.trace_of(seq)))

    async def _ask(
        self, rpc: Rpc, request: channel.Request, seq: JobSeq | None = None, trace: TraceParent = NO_TRACE
    ) -> None:
        """One call; without an answer the job table makes it due again."""
        begin_work(trace)
        try:
            reply = await rpc.call(request, timeout_seconds=CALL_SECONDS, trace=trace)
        except PeerClosedError:
            return
        except BlockyardError as error:
            if not isinstance(error, UnavailableError):
                self._core.desk.table.heard(self.role)
            _log.warning("the worker did not take a message", worker=self.role.label, reason=str(error))
            return
        table = self._core.desk.table
        table.heard(self.role)
        if isinstance(reply, channel.Accepted) and seq is not None:
            table.accepted(seq)
        elif isinstance(reply, channel.Busy) and seq is not None:
            table.busy(seq, reply.retry_ms)
        elif isinstance(reply, channel.Refused) and seq is not None:
            with deciding():
                self._core.job_refused(seq, Refusal(reply.reason))
        elif isinstance(reply, channel.JobStates):
            with deciding():
                for state in reply.states:
                    self._core.job_state(JobSeq(state.seq), JobPhase(state.state))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._call_ended)

    def _call_ended(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.result()  # an error here is a bug: it reaches the handler of the event loop, which ends the service
        self._wake.set()


def _expect(reply: channel.Reply, kind: type[ReplyT]) -> ReplyT:
    if not isinstance(reply, kind):
        raise MalformedFrameError("a worker answered with another message", message=type(reply).__name__)
    return reply


def _arena_id(answer: channel.Attached) -> str:
    return "" if answer.arena is None else answer.arena.arena.hex()
