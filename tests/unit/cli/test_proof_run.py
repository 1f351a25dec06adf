"""A run ends in a report that names its cause, unless nothing was begun because a setting is wrong."""

import asyncio
import errno
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from tests.unit.cli.idle_node import IdleNode

from blockyard.cli.demo_plan import SHORT
from blockyard.cli.demo_report import DemoReport
from blockyard.cli.display import PlainDisplay
from blockyard.cli.engine_link import EngineLink
from blockyard.cli.node_metrics import NodeFigures
from blockyard.cli.proof_run import run_demo, unplanned_restarts
from blockyard.cli.venue import ServiceAddress, Venue, VenueKind
from blockyard.core.errors import (
    BlockyardError,
    ConfigurationError,
    PeerClosedError,
    ProcessEndedError,
    ServerStartError,
)
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import G4Section


class Engine(EngineLink):
    """An engine that is gone, or never answers."""

    def __init__(self, name: str, *, gone: bool) -> None:
        super().__init__(name)
        self._is_gone = gone

    async def _read_line(self) -> bytes:
        return await asyncio.Future()

    def _write_line(self, line: bytes) -> None:
        if self._is_gone:
            raise ConnectionError

    def _gone(self) -> PeerClosedError:
        return PeerClosedError("the engine is gone", engine=self.name)


class Node(IdleNode):
    """A node with such an engine."""

    def __init__(self, name: str, *, gone: bool) -> None:
        super().__init__(name)
        self.engine = Engine(f"engine-{name}", gone=gone)

    def addresses(self) -> tuple[ServiceAddress, ...]:
        return ()


class IdleVenue:
    """A venue on which nothing happens but what its check finds; where it finds nothing, the engines are gone."""

    kind = VenueKind.COMPOSE
    place = "nowhere"

    def __init__(self, http: httpx.AsyncClient, found: BlockyardError | None) -> None:
        self.http = http
        self.nodes = tuple(Node(name, gone=found is None) for name in ("a", "b"))
        self._found = found

    def object_store(self) -> G4Section:
        raise NotImplementedError

    async def disk_bytes(self) -> int:
        raise NotImplementedError

    async def check(self) -> None:
        if self._found is not None:
            raise self._found


async def report_of(
    *, opening: BlockyardError | OSError | None = None, check: BlockyardError | None = None
) -> DemoReport:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Venue]:
        if opening is not None:
            raise opening
        async with httpx.AsyncClient() as http:
            yield IdleVenue(http, check)

    display = PlainDisplay(io.StringIO())
    return await run_demo(SHORT, VenueKind.COMPOSE, opened, display, limit_seconds=20)


async def test_a_wrong_setting_before_the_start_is_no_outcome() -> None:
    with pytest.raises(ConfigurationError):
        await report_of(opening=ConfigurationError("the files lack services", key="--compose"))


async def test_a_start_that_fails_is_an_outcome() -> None:
    report = await report_of(opening=ServerStartError("not all of the stack runs"))
    assert not report.ready
    assert "not all of the stack runs" in report.stopped_by


async def test_an_engine_that_ends_is_the_cause_of_the_end() -> None:
    report = await report_of()
    assert report.ready
    assert report.venue is VenueKind.COMPOSE
    assert "the engine is gone" in report.failures()[0]
    assert len(report.not_reached()) == 8


@pytest.mark.parametrize(
    "found", [ProcessEndedError("nats: exited"), ConfigurationError("a port is not published any more")]
)
async def test_what_the_venue_finds_in_the_middle_is_the_cause_of_the_end(found: BlockyardError) -> None:
    report = await report_of(check=found)
    assert report.ready
    assert report.stopped_by == str(found)


async def test_a_run_that_takes_too_long_names_the_limit() -> None:
    @asynccontextmanager
    async def never() -> AsyncIterator[Venue]:
        await asyncio.Future()
        yield IdleVenue(httpx.AsyncClient(), None)

    report = await run_demo(SHORT, VenueKind.COMPOSE, never, PlainDisplay(io.StringIO()), limit_seconds=0.1)
    assert report.stopped_by == "not everything had started after 0.1 s (--seconds)"


async def test_a_timeout_of_the_system_is_not_taken_for_the_limit() -> None:
    report = await report_of(opening=TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
    assert "Connection timed out" in report.stopped_by
    assert "--seconds" not in report.stopped_by


def test_a_life_that_the_run_did_not_give_is_named() -> None:
    def figures(node: str, **restarts: int) -> NodeFigures:
        named = {ServiceName(name.replace("_", "-")): times for name, times in restarts.items()}
        return NodeFigures(node, running=True, tiers=(), mover="", unsettled_jobs=0, sessions=0, restarts=named)

    nodes = (figures("a", remote_tier=0, block_manager=1), figures("b", remote_tier=1, offload_worker=2))
    assert unplanned_restarts(nodes, {"b": 1}) == ["block-manager of a", "offload-worker of b"]
