"""Phases go on only when what they build on is there, and say what is missing."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from tests.unit.cli.idle_node import IdleNode

from blockyard.cli import proof_run
from blockyard.cli.demo_plan import SHORT
from blockyard.cli.demo_report import DemoReport
from blockyard.cli.display import PlainDisplay
from blockyard.cli.engine_link import EngineLink
from blockyard.cli.proof_run import run_demo
from blockyard.cli.slab_damage import SlabBlock
from blockyard.cli.venue import ServiceAddress, VenueKind
from blockyard.core.errors import PeerClosedError
from blockyard.core.vocabulary import ContentKey, IdentityDigest
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import G4Section

STRANGER = SlabBlock("/g3/x.slab", 0, 8, IdentityDigest(b"i" * 32), ContentKey(b"k" * 16))


class WillingEngine(EngineLink):
    """It does whatever it is told, at once."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._answers = asyncio.Queue[bytes]()

    async def _read_line(self) -> bytes:
        return await self._answers.get()

    def _write_line(self, line: bytes) -> None:
        done = {"event": "done", "cmd": json.loads(line)["cmd"], "stats": {}}
        self._answers.put_nowait(json.dumps(done).encode() + b"\n")

    def _gone(self) -> PeerClosedError:
        raise NotImplementedError


class WillingNode(IdleNode):
    """Its services are restarted in no time."""

    def __init__(self, name: str, blocks: list[SlabBlock]) -> None:
        super().__init__(name)
        self.engine = WillingEngine(f"engine-{name}")
        self.started = 1
        self._blocks = blocks

    def addresses(self) -> tuple[ServiceAddress, ...]:
        return (ServiceAddress(self.name, ServiceName.BLOCK_MANAGER, f"http://{self.name}"),)

    async def kill(self) -> None:
        pass

    async def kill_services(self) -> None:
        pass

    async def start_services(self) -> None:
        self.started += 1

    async def wait_ready(self, http: httpx.AsyncClient, say: Callable[[str], None]) -> None:
        pass

    async def slab_blocks(self) -> list[SlabBlock]:
        return self._blocks


class WillingVenue:
    """Two such nodes."""

    kind = VenueKind.LOCAL
    place = "nowhere"

    def __init__(self, blocks: list[SlabBlock], *, mute_from: int) -> None:
        self.nodes = tuple(WillingNode(name, blocks) for name in ("a", "b"))
        self.http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        self._mute_from = mute_from

    def _answer(self, request: httpx.Request) -> httpx.Response:
        """Figures of a block-manager with an engine, until the life in which it does not answer."""
        (node,) = (node for node in self.nodes if node.name == request.url.host)
        if node.started >= self._mute_from:
            raise httpx.ReadTimeout("")
        return httpx.Response(200, text=f"process_start_time_seconds {node.started}\nblockyard_sessions 1\n")

    def object_store(self) -> G4Section:
        raise NotImplementedError

    async def disk_bytes(self) -> int:
        raise NotImplementedError

    async def check(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_IDLE_SECONDS", "_CONNECT_LIMIT_SECONDS", "_POLL_SECONDS"):
        monkeypatch.setattr(proof_run, name, 0.0)


async def report_of(*blocks: SlabBlock, mute_from: int = 9) -> DemoReport:
    @asynccontextmanager
    async def opened() -> AsyncIterator[WillingVenue]:
        venue = WillingVenue(list(blocks), mute_from=mute_from)
        async with venue.http:
            yield venue

    return await run_demo(SHORT, VenueKind.LOCAL, opened, PlainDisplay(io.StringIO()), limit_seconds=20)


def ends(report: DemoReport) -> tuple[str, bool]:
    """The phase in which it ended."""
    last = report.phases[-1]
    return last.name, last.finished


async def test_an_engine_that_does_not_find_its_restarted_node_ends_the_run() -> None:
    """Also while the block-manager says nothing, and its figures are still those of the life before."""
    report = await report_of(mute_from=2)
    assert ends(report) == ("restart", False)
    assert "did not find its restarted node" in report.stopped_by


@pytest.mark.parametrize(
    ("blocks", "words"),
    [((), "there is no block on B's disk"), ((STRANGER,), "none of the wanted blocks is on B's disk")],
)
async def test_a_disk_without_the_blocks_to_damage_ends_the_run(blocks: tuple[SlabBlock, ...], words: str) -> None:
    report = await report_of(*blocks)
    assert ends(report) == ("damage-g3", False)
    assert words in report.stopped_by
    assert "blocks did not get there" in report.stopped_by
