"""``blockyard demo``: the run that shows that blocks travel, survive, and are never wrong.

::

    compute -> reuse -> share -> kill A -> restart B -> damage G3 -> damage G4 -> count

A computes and offloads; B finds A's blocks in G4, also when A is dead; after B's services were killed its G3 is warm; a
flipped byte on disk and one in the object store are found, counted, and a miss. Engines check every byte.
Invariants: a run always ends in a report, whatever breaks on the way, except when it is interrupted or
its settings are wrong.
Threading: one event loop, in the main thread.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from blockyard.cli.demo_plan import DemoPlan, Requests
from blockyard.cli.demo_report import DemoReport, PhaseResult
from blockyard.cli.display import Display
from blockyard.cli.engine_events import BlockReport, EngineStats, TierCounts
from blockyard.cli.engine_link import EngineLink
from blockyard.cli.failures import EngineCommandError, NothingToDamageError
from blockyard.cli.node_metrics import NodeFigures
from blockyard.cli.slab_damage import SlabBlock
from blockyard.cli.system_calls import meaning_of
from blockyard.cli.together import alongside
from blockyard.cli.trace_keys import TraceKeys
from blockyard.cli.venue import Venue, VenueKind, VenueNode
from blockyard.cli.watch import Watch
from blockyard.core.errors import BlockyardError, ConfigurationError
from blockyard.runtime.node_folder import ServiceName

_POLL_SECONDS: Final = 0.25
_IDLE_SECONDS: Final = 2.5
"""Longer than a chain must be idle before its last pack is stored."""
_SETTLE_LIMIT_SECONDS: Final = 30.0
_COUNT_LIMIT_SECONDS: Final = 3.0
_CONNECT_LIMIT_SECONDS: Final = 15.0


async def run_demo(
    plan: DemoPlan,
    kind: VenueKind,
    open_venue: Callable[[], AbstractAsyncContextManager[Venue]],
    display: Display,
    *,
    limit_seconds: float,
) -> DemoReport:
    """One proof run from start to clean-up.

    Args:
        plan: what is done.
        kind: what is to be opened.
        open_venue: the place to do it in; started when it is entered, left as it should be when it is left.
        display: shows the run.
        limit_seconds: longest time, clean-up not included.

    Raises:
        ConfigurationError: nothing was started, because a setting is wrong.
    """
    report = DemoReport(min_verified_blocks=plan.min_verified_blocks, venue=kind)
    started = time.monotonic()
    limit = asyncio.timeout(limit_seconds)
    try:
        async with limit, open_venue() as venue:
            report.ready, report.seconds_to_ready = True, time.monotonic() - started
            display.say(f"ready after {report.seconds_to_ready:.1f} s; {venue.place}")
            await ProofRun(plan, venue, display, report).run()
    except BlockyardError as error:
        if isinstance(error, ConfigurationError) and not report.ready:
            raise
        report.stopped_by = str(error)
    except OSError as error:
        # The system's own timeouts are of the same class as this one.
        if limit.expired():
            what = "not finished" if report.ready else "not everything had started"
            report.stopped_by = f"{what} after {limit_seconds:g} s (--seconds)"
        else:
            report.stopped_by = str(meaning_of(error))
    report.seconds = time.monotonic() - started
    return report


class ProofRun:
    """The phases, on a running venue."""

    def __init__(self, plan: DemoPlan, venue: Venue, display: Display, report: DemoReport) -> None:
        """Run ``plan`` on ``venue`` and fill in ``report``."""
        self._plan = plan
        self._venue = venue
        self._display = display
        self._report = report
        self._watch = Watch(venue, display)
        self._a, self._b = venue.nodes
        self._engines = tuple(_engine_of(node) for node in venue.nodes)

    async def run(self) -> None:
        """All phases in order; the report holds what was reached also when one fails."""
        try:
            await alongside(self._watch.run(), self._phases())
        finally:
            self._count_engines()

    async def _phases(self) -> None:
        async with self._phase("compute", "A computes and offloads"):
            await self._compute()
        async with self._phase("reuse", "A drops its own cache and is served from G2 and G3"):
            await self._reuse(self._engines[0])
        async with self._phase("share", "B finds A's blocks through the index and the object store"):
            self._report.g4_cross_node_hits = await self._serve_foreign(self._plan.shared)
        async with self._phase("kill", "A is killed with all its processes; B still serves A's blocks"):
            await self._kill_a()
            self._report.after_kill_hits = await self._serve_foreign(self._plan.after_kill)
        async with self._phase("restart", "B's services are killed and restarted; its disk tier is warm"):
            self._report.warm_restart_g3_blocks = await self._restart_b()
        async with self._phase("damage-g3", "one byte is flipped on B's disk"):
            self._report.g3_damage = await self._damage_g3()
        async with self._phase("damage-g4", "one byte is flipped in the object store"):
            self._report.g4_damage = await self._damage_g4()
        async with self._phase("count", "both flipped bytes must have been counted"):
            figures = await self._counted()
            self._report.checksum_failures = sum(node.checksum_failures for node in figures)
            self._report.unplanned_restarts = unplanned_restarts(figures, {self._b.name: 1})
        self._report.disk_bytes = await self._venue.disk_bytes()

    # --- phases -----------------------------------------------------------------------------------------------------
    async def _compute(self) -> None:
        requests = self._plan.compute
        await self._engines[0].replay(requests.first, requests.count, pace=self._plan.pace)
        await self._idle(self._a)

    async def _reuse(self, engine: EngineLink) -> None:
        for requests in (self._plan.older, *[self._plan.recent] * self._plan.recent_passes):
            await self._serve_again(engine, requests)

    async def _serve_foreign(self, requests: Requests) -> int:
        """Blocks that B loaded from G4 and that only A can have computed."""
        engine = self._engines[1]
        before = engine.latest.foreign.G4
        after = (await engine.replay(requests.first, requests.count)).foreign.G4
        return after - before

    async def _kill_a(self) -> None:
        await self._watch.show_once()
        await self._a.kill()
        self._display.say("  killed A: block-manager, offload-worker, remote-tier and engine")

    async def _restart_b(self) -> int:
        """Blocks that B's engine loads from its G3 right after the restart."""
        engine = self._engines[1]
        await self._idle(self._b)
        # An engine with blocks of its own would announce them again, and they would not need G3.
        await engine.reset()
        await self._watch.show_once()
        await self._b.kill_services()
        started = time.monotonic()
        await self._b.start_services()
        await self._b.wait_ready(self._venue.http, self._display.say)
        await self._connected(self._b)
        self._display.say(f"  B's services are ready again after {time.monotonic() - started:.1f} s")
        before = engine.latest.verified.G3
        await self._serve_again(engine, self._plan.warm)
        return engine.latest.verified.G3 - before

    async def _damage_g3(self) -> BlockReport:
        blocks = await self._blocks_on_disk()
        keys = TraceKeys(blocks[0].identity)
        # Served by B, but not since its restart: so these blocks are on its disk only, not in its memory.
        wanted = keys.of(self._plan.after_kill) - keys.of(self._plan.warm)
        target = next((block for block in blocks if block.key in wanted), None)
        if target is None:
            raise NothingToDamageError("none of the wanted blocks is on B's disk")
        await self._b.flip_slab_byte(target)
        return await self._probe(target.key.hex())

    async def _damage_g4(self) -> BlockReport:
        # Loaded here, because its client library takes long to load: the start would wait for it.
        from blockyard.cli.pack_damage import PackVandal

        vandal = PackVandal(self._venue.object_store())
        keys = TraceKeys((await self._blocks_on_disk())[0].identity)
        # Computed by A, never served by B: so these blocks are in the object store only.
        everything = Requests(0, self._plan.untouched.first)
        target = await vandal.find(keys.of(self._plan.untouched) - keys.of(everything))
        if target is None:
            raise NothingToDamageError("none of the wanted blocks is in the object store")
        await vandal.flip_byte(target)
        return await self._probe(target.key.hex())

    async def _blocks_on_disk(self) -> list[SlabBlock]:
        blocks = await self._b.slab_blocks()
        if not blocks:
            raise NothingToDamageError("there is no block on B's disk")
        return blocks

    async def _probe(self, key: str) -> BlockReport:
        report = await self._engines[1].probe(key)
        self._display.say(
            f"  block {key[:8]}: load {report.status or 'not tried'}, from {report.source or 'nowhere'}, "
            f"wrong bytes {report.wrong_bytes}"
        )
        return report

    # --- waits and counts -------------------------------------------------------------------------------------------
    async def _serve_again(self, engine: EngineLink, requests: Requests) -> None:
        await engine.reset()
        await engine.replay(requests.first, requests.count)

    async def _idle(self, node: VenueNode) -> None:
        """Wait until a node has nothing left to store; gives up after a while, the expectations then tell."""
        deadline = time.monotonic() + _SETTLE_LIMIT_SECONDS
        moved, since = -1, time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - since < _IDLE_SECONDS:
            figures = (await self._watch.figures())[node.name]
            if figures.moved_bytes != moved or figures.unsettled_jobs:
                moved, since = figures.moved_bytes, time.monotonic()
            await asyncio.sleep(_POLL_SECONDS)

    async def _connected(self, node: VenueNode) -> None:
        """Wait until the engine of a restarted node has found it again."""
        deadline = time.monotonic() + _CONNECT_LIMIT_SECONDS
        while True:
            figures = (await self._watch.figures())[node.name]
            # A service that does not answer keeps its last figures, those of the life before included.
            if figures.sessions and figures.restarts[ServiceName.BLOCK_MANAGER]:
                return
            if time.monotonic() > deadline:
                raise EngineCommandError("the engine did not find its restarted node", engine=node.name)
            await asyncio.sleep(_POLL_SECONDS)

    async def _counted(self) -> tuple[NodeFigures, ...]:
        """Figures of all nodes, once both flipped bytes are among them; gives up after a while."""
        deadline = time.monotonic() + _COUNT_LIMIT_SECONDS
        while True:
            figures = tuple((await self._watch.figures()).values())
            if sum(node.checksum_failures for node in figures) >= 2 or time.monotonic() > deadline:
                return figures
            await asyncio.sleep(_POLL_SECONDS)

    def _count_engines(self) -> None:
        stats = [engine.latest for engine in self._engines]
        self._report.computed = sum(item.computed for item in stats)
        self._report.wrong_bytes = sum(item.wrong_bytes for item in stats)
        self._report.verified = TierCounts()
        for item in stats:
            self._report.verified = self._report.verified.plus(item.verified)

    @asynccontextmanager
    async def _phase(self, name: str, sentence: str) -> AsyncIterator[None]:
        self._display.say(f"{name}: {sentence}")
        started = time.monotonic()
        finished = False
        try:
            yield
            finished = True
        finally:
            seconds = time.monotonic() - started
            self._report.phases.append(PhaseResult(name, seconds, finished))
        await self._watch.show_once()
        self._display.say(f"  {name} done in {seconds:.1f} s; {_sentence([e.latest for e in self._engines])}")


def unplanned_restarts(figures: Iterable[NodeFigures], planned: Mapping[str, int]) -> list[str]:
    """Services that began more lives than the run gave them; ``planned`` says how many by node."""
    return [
        f"{service} of {node.node}"
        for node in figures
        for service, times in node.restarts.items()
        if times > planned.get(node.node, 0)
    ]


def _engine_of(node: VenueNode) -> EngineLink:
    if node.engine is None:
        raise EngineCommandError("the node has no engine", node=node.name)
    return node.engine


def _sentence(stats: list[EngineStats]) -> str:
    verified = TierCounts()
    for item in stats:
        verified = verified.plus(item.verified)
    return (
        f"so far computed {sum(item.computed for item in stats)}, verified from G2 {verified.G2}, G3 {verified.G3}, "
        f"G4 {verified.G4}, wrong bytes {sum(item.wrong_bytes for item in stats)}"
    )
