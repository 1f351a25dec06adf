"""The demo engine: serves trace requests the way a real engine would, without a model.

Per request: wait until G1 has room for it, take the prefix that G1 holds, look the rest up, load what the node has,
check every loaded byte against the oracle, "compute" the rest by filling it from the oracle, register all new blocks.
It uses nothing but the client API. A failed or wrong block is computed again, never served.
Invariants: counters only rise; a block of G1 is registered only after its bytes are complete.
Threading: one event loop; requests run concurrently up to the caller's choice.
"""

from dataclasses import dataclass, field
from typing import Final, final

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.mock.admission import Admission
from blockyard.connectors.mock.oracle import payload, wrong_bytes
from blockyard.connectors.mock.prefix_cache import PrefixCache
from blockyard.connectors.mock.request_traces import BeginTrace, no_traces
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS, TraceRequest
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import DeadlineExceededError, UnavailableError
from blockyard.core.hashing import content_run
from blockyard.core.identity import ModelIdentity, SequenceScope
from blockyard.core.vocabulary import Availability, ContentKey, EngineBlockId, ItemStatus, RequestId, Tier
from blockyard.wire.trace_parent import TraceParent

_LOAD_TTL_SECONDS: Final = 2.0
"""A load that takes longer is worth less than computing: the engine waits for it in the middle of a request."""
_REMOTE_WAIT_SECONDS: Final = 0.25
"""Likewise for a lookup, which every request waits for."""


@dataclass(slots=True)
class EngineCounts:
    """What the engine did since its start; all in blocks unless named otherwise."""

    requests: int = 0
    asked: int = 0
    g1_hits: int = 0
    computed: int = 0
    unknown: int = 0
    failed: int = 0
    refused_calls: int = 0
    """Calls that failed because the node could not be asked, those without an answer included."""
    late_answers: int = 0
    """Calls that had no answer in time, and loads that ended before their blocks were settled."""
    wrong_blocks: int = 0
    wrong_bytes: int = 0
    verified: dict[Tier, int] = field(default_factory=lambda: dict.fromkeys((Tier.G2, Tier.G3, Tier.G4), 0))
    foreign: dict[Tier, int] = field(default_factory=lambda: dict.fromkeys((Tier.G2, Tier.G3, Tier.G4), 0))
    """Verified blocks that this engine never computed itself: another one did."""


@final
@dataclass(frozen=True, slots=True)
class BlockOutcome:
    """What became of one block of one request."""

    key: ContentKey
    availability: Availability | None
    """Answer of the lookup; None where G1 held the block or no node could be asked."""
    status: ItemStatus | None
    """Result of its load; None where it was not loaded."""
    source: Tier | None
    wrong_bytes: int


class MockEngine:
    """Engine with ``memory`` as G1, connected through ``client``."""

    def __init__(
        self,
        client: BlockyardClient,
        memory: EngineMemory,
        identity: ModelIdentity,
        begin_trace: BeginTrace = no_traces,
    ) -> None:
        """Serve requests of the default scope; each begins a trace with ``begin_trace``."""
        self.counts = EngineCounts()
        self._client = client
        self._begin_trace = begin_trace
        self._memory = memory
        self._identity = identity.digest()
        self._scope = SequenceScope()
        self._cache = PrefixCache(memory.blocks)
        self._admission = Admission(self._cache, memory.blocks, lambda: client.unsettled_blocks)
        self._own: set[ContentKey] = set()

    def run_of(self, request: TraceRequest) -> ChainRun:
        """Content keys of a request's blocks."""
        return content_run(self._identity, self._scope, request.tokens(), TRACE_BLOCK_TOKENS)

    async def serve(self, request: TraceRequest) -> list[BlockOutcome]:
        """Serve one request, as soon as there is room for it; the outcome of every block in order.

        Raises:
            OutOfBlocksError: G1 is too small for this request alone.
        """
        run = self.run_of(request)
        admitted = await self._admission.enter(tuple(run.keys()))
        held, blocks = admitted.held, admitted.taken
        try:
            self.counts.requests += 1
            self.counts.asked += len(run)
            self.counts.g1_hits += len(held)
            outcomes = [BlockOutcome(key, None, None, None, 0) for key in run.slice(0, len(held))]
            rest = run.slice(len(held), len(run))
            if not len(rest):
                return outcomes
            request_id = RequestId(f"trace-{request.index}-{self.counts.requests}")
            await self._tell_reuse(blocks)
            outcomes += await self._fill(request_id, rest, blocks, self._begin_trace())
        finally:
            self._admission.leave(admitted)
        return outcomes

    async def reset(self) -> None:
        """Drop the own prefix cache, so that the next requests ask the node."""
        self._cache.clear()
        self._memory.guards.raise_all()
        try:
            await self._client.reset()
        except UnavailableError as error:
            self._count_refused(error)  # guards are raised; the next connection hears of an empty set

    async def _tell_reuse(self, blocks: list[EngineBlockId]) -> None:
        self._memory.raise_guards(blocks)
        try:
            await self._client.deregister(blocks)
        except UnavailableError as error:
            self._count_refused(error)  # guards are raised; the set is announced again after the reconnect

    async def _fill(
        self, request: RequestId, run: ChainRun, blocks: list[EngineBlockId], trace: TraceParent
    ) -> list[BlockOutcome]:
        outcomes = await self._load(request, run, blocks, trace)
        usable = 0
        for outcome in outcomes:
            if outcome.status is not ItemStatus.OK or outcome.wrong_bytes:
                break
            usable += 1
        unsettled = self._client.unsettled_blocks
        for index in range(usable, len(run)):
            if blocks[index] in unsettled:
                break  # a late write could still land here: such a block is neither filled nor registered
            self._memory.view(blocks[index])[:] = payload(self._identity, run.key(index), self._memory.block_bytes)
            self._own.add(run.key(index))
            self.counts.computed += 1
            usable = index + 1
        await self._register(run.slice(0, usable), blocks[:usable], trace)
        return outcomes

    async def _load(
        self, request: RequestId, run: ChainRun, blocks: list[EngineBlockId], trace: TraceParent
    ) -> list[BlockOutcome]:
        try:
            (found,) = await self._client.lookup(run, remote_wait_seconds=_REMOTE_WAIT_SECONDS, trace=trace)
            self.counts.unknown += sum(value is Availability.UNKNOWN for value in found)
            hits = next((index for index, value in enumerate(found) if not value.is_hit), len(found))
            if not hits:
                return [BlockOutcome(key, found[index], None, None, 0) for index, key in enumerate(run)]
            await self._client.reserve(request, run.slice(0, hits))
            result = await self._client.load(
                request, run.slice(0, hits), blocks[:hits], ttl_seconds=_LOAD_TTL_SECONDS, trace=trace
            )
            self.counts.late_answers += not self._client.unsettled_blocks.isdisjoint(blocks)
            await self._client.release(request)
        except UnavailableError as error:
            self._count_refused(error)
            return [BlockOutcome(key, None, None, None, 0) for key in run]
        outcomes = []
        for index, key in enumerate(run):
            status = result.statuses[index] if index < hits else None
            source = result.sources[index] if index < hits else None
            wrong = self._check(key, blocks[index], source) if status is ItemStatus.OK else 0
            self.counts.failed += status is not None and status is not ItemStatus.OK
            outcomes.append(BlockOutcome(key, found[index], status, source, wrong))
        return outcomes

    def _count_refused(self, error: UnavailableError) -> None:
        self.counts.refused_calls += 1
        self.counts.late_answers += isinstance(error, DeadlineExceededError)

    def _check(self, key: ContentKey, block: EngineBlockId, source: Tier | None) -> int:
        wrong = wrong_bytes(self._memory.view(block), self._identity, key)
        if wrong:
            self.counts.wrong_blocks += 1
            self.counts.wrong_bytes += wrong
        elif source is not None and source in self.counts.verified:
            self.counts.verified[source] += 1
            self.counts.foreign[source] += key not in self._own
        return wrong

    async def _register(self, run: ChainRun, blocks: list[EngineBlockId], trace: TraceParent) -> None:
        named = [index for index, key in enumerate(run) if self._cache.insert(key, blocks[index])]
        if not named:
            return
        first, last = named[0], named[-1] + 1
        try:
            await self._client.register(run.slice(first, last), blocks[first:last], trace=trace)
        except UnavailableError as error:
            self._count_refused(error)  # the client announces its set after the reconnect
