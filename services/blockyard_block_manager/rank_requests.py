"""Requests about slots that ranks of engines write and read themselves, and who gets the arena for that.

Invariants: a process gets the arena only after its record is durable; of a rank that something waits for the
connection is ended, so that it attaches anew once its copies are over.
Threading: one event loop; ``admit`` waits for the disk, everything else is one section of the core.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, final

import numpy as np

from blockyard.core.arena_writers import AttachmentId, RankId, RankProcess
from blockyard.core.errors import PeerClosedError, RequestError, UnavailableError
from blockyard.core.onboard_plan import LoadOutcome
from blockyard.core.store_grants import GrantId
from blockyard.core.vocabulary import BlockId, EngineId, ItemStatus, LoadId, Tier
from blockyard.runtime.current_trace import current_trace
from blockyard.runtime.logs import get_logger
from blockyard.runtime.rpc.session import RpcSession
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard_block_manager import connector_requests as requests
from blockyard_block_manager.arena_keeper import ArenaKeeper
from blockyard_block_manager.arena_writers import RankWriters
from blockyard_block_manager.decisions import deciding
from blockyard_block_manager.engine_mappings import ConnectedEngine
from blockyard_block_manager.engine_ranks import AttachedRank
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.writer_processes import WriterProcesses, observe

_log: Final = get_logger(__name__)


@final
class RankRequests:
    """What ranks that copy ask for, and their engines on their behalf."""

    def __init__(self, core: NodeCore, arena: ArenaKeeper, processes: WriterProcesses) -> None:
        """Hand over ``arena`` to processes that ``processes`` watches."""
        self._core = core
        self._arena = arena
        self._processes = processes
        processes.on_death = self._died
        self._attached: dict[AttachedRank, tuple[AttachmentId, RankProcess]] = {}
        self._admitted: Counter[RankProcess] = Counter()
        """Processes that are about to get the arena: how often. Their records and watches stay."""

    # --- attach -------------------------------------------------------------------------------------------------------
    async def admit(self, request: channel.AttachRank, rpc: RpcSession) -> RankProcess:
        """Make the record of a rank's process durable.

        Raises:
            UnavailableError: there is no arena yet, or the process is gone.
            UnsupportedOperationError: the process cannot be seen from here.
        """
        if not self._arena.fds:
            raise UnavailableError("there is no arena before the offload-worker has attached")
        rank = RankId(EngineId(request.engine), request.dp_rank, request.rank)
        process = observe(rank, rpc.peer_pid)
        self._admitted[process] += 1
        try:
            await self._processes.admit(process)
        except BaseException:
            self.withdraw(process)
            raise
        return process

    def withdraw(self, process: RankProcess | None) -> None:
        """What was admitted is not attached: another one fits, or it does not fit its engine."""
        if process is not None:
            self._no_longer_admitted(process)
            self._forget_unused([process])

    def attach(self, rank: AttachedRank, process: RankProcess) -> tuple[channel.RankAttached, list[int]]:
        """The rank is attached: the answer, with the arena's descriptor, which closes with the answer's sending."""
        self._no_longer_admitted(process)
        with deciding():
            attachment = self._core.decide(lambda ranks: ranks.attach(process))
        self._attached[rank] = (attachment, process)
        reply = channel.RankAttached(version=PROTOCOL_VERSION, arena=self._arena.info)
        return reply, list(self._arena.fds)

    def detach(self, rank: AttachedRank) -> None:
        """The connection of a rank ended, after its engine's grants have. Idempotent."""
        attachment, process = self._attached.pop(rank, (None, None))
        if attachment is None or process is None:
            return
        with deciding():
            forgotten = self._core.decide(lambda ranks: ranks.detach(attachment))
        if forgotten:
            self._forget_unused([process])

    def awaited(self) -> list[AttachedRank]:
        """Attached ranks that something waits for: they are to attach anew."""
        awaited = self._core.ranks.awaited
        return [rank for rank, (attachment, _) in self._attached.items() if attachment in awaited]

    def inherit(self) -> None:
        """Take over what is recorded of an earlier life."""
        for process in self._processes.inherited():
            _log.info("a rank of an earlier life may still write the arena", engine=process.rank.engine)
            with deciding():
                self._core.decide(partial(RankWriters.inherit, process=process))

    def _died(self, process: RankProcess) -> None:
        """A process is proven dead."""
        with deciding():
            self._core.decide(lambda ranks: ranks.dead(process))

    def arena_replaced(self) -> None:
        """The node has another arena: ranks are told, and those of the old one need no record any more."""
        gone = list(self._attached)
        self._forget_unused(self._processes.recorded())
        self._attached.clear()
        for rank in gone:
            try:
                rank.rpc.push(channel.ArenaReplaced())
            except PeerClosedError:
                _log.debug("a rank went before it was told of the new arena", engine=rank.request.engine)

    def _no_longer_admitted(self, process: RankProcess) -> None:
        self._admitted[process] -= 1
        if not self._admitted[process]:
            del self._admitted[process]

    def _forget_unused(self, processes: Iterable[RankProcess]) -> None:
        """Those of the processes that neither have the arena nor are about to get it need no record."""
        known = {writer.process for writer in self._core.ranks.writers} | self._admitted.keys()
        self._processes.forget(process for process in processes if process not in known)

    # --- grants -------------------------------------------------------------------------------------------------------
    def reserve_store(self, session: EngineSession, request: channel.ReserveStore) -> channel.StoreGranted:
        """Grant slots ahead."""
        if request.count < 1:
            raise RequestError("a grant is of at least one slot", field="count", count=request.count)
        granted = self._core.decide(lambda ranks: ranks.grants.reserve(session, request.count))
        return channel.StoreGranted(
            grant=granted.grant,
            slots=np.array(granted.slots, "<u4").tobytes(),
            generations=np.array(granted.generations, "<u8").tobytes(),
        )

    def commit_store(self, session: EngineSession, request: channel.CommitStore) -> None:
        """Shards of slots are written."""
        names = requests.names_in(request.run)
        scope = requests.scope_of(session, request.tenant, self._core.profile.block_tokens, request.group)
        slots, grant, trace = _slots(request.slots), GrantId(request.grant), current_trace()
        self._core.decide(lambda ranks: ranks.grants.commit(session, grant, slots, scope, names, request.shards, trace))

    def abort_store(self, session: EngineSession, request: channel.AbortStore) -> None:
        """Slots go back."""
        slots = _slots(request.slots)
        self._core.decide(lambda ranks: ranks.grants.abort(session, GrantId(request.grant), slots))

    # --- staged loads -------------------------------------------------------------------------------------------------
    def check_stage(self, session: EngineSession, request: channel.OpenLoad, count: int) -> None:
        """Refuse a load of ``count`` rows that cannot be staged now; a long one may be the only one.

        Raises:
            RequestError: it names pages, which nobody but the ranks could write.
            UnavailableError: a rank is not attached, or staged loads pin too much already.
        """
        if request.pages or request.guards:
            raise RequestError("ranks that copy by themselves are told slots, not pages", field="pages")
        if not self._core.ranks.grants.usable(session):
            raise UnavailableError("not every rank of the engine has the arena")
        limit = int(self._core.tables.pool(Tier.G2).capacity * self._core.profile.staged_share)
        others = self._core.ranks.staged.rows + self._core.loads.staging_rows
        if others and others + count > limit:
            raise UnavailableError("staged loads pin too much of G2: close those that are read", limit=limit)

    def staged_push(self, load: LoadId, outcome: LoadOutcome) -> channel.LoadStaged:
        """What an engine is told of a staged load."""
        slots = self._core.ranks.staged.slots(load)
        none = (BlockId(0), 0)
        places = [
            slots.get(index, none) if status is ItemStatus.OK else none for index, status in enumerate(outcome.status)
        ]
        return channel.LoadStaged(
            load=load,
            status=bytes(outcome.status),
            sources=bytes(0 if tier is None else tier for tier in outcome.sources),
            slots=np.array([slot for slot, _ in places], "<u4").tobytes(),
            generations=np.array([generation for _, generation in places], "<u8").tobytes(),
        )


def part(engine: ConnectedEngine | None, ranks: list[AttachedRank], lost: Callable[[AttachedRank], None]) -> None:
    """End the connections of these ranks, so that they attach anew."""
    own = None if engine is None else engine.rpc
    for rank in ranks:
        lost(rank)
        if rank.rpc is not own:
            rank.rpc.close(UnavailableError("attach again once the copies of before have ended"))


def _slots(column: bytes) -> list[BlockId]:
    if len(column) % 4:
        raise RequestError("a column is cut", field="slots", length=len(column))
    return [BlockId(int(slot)) for slot in np.frombuffer(column, "<u4")]
