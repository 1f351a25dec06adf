"""A stack that has worked before, or whose sizes show nothing, is refused with the setting to change."""

from typing import Any

import httpx
import pytest
from tests.unit.cli.idle_node import IdleNode

from blockyard.cli import pack_damage
from blockyard.cli.compose.fitness import SizeBounds, require_fitting, require_fresh
from blockyard.cli.demo_plan import FULL, SHORT
from blockyard.cli.engine_events import EngineStats
from blockyard.cli.engine_link import EngineLink
from blockyard.cli.failures import StackNotFreshError
from blockyard.cli.venue import ServiceAddress
from blockyard.core.errors import ConfigurationError, PeerClosedError, ServerStartError
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import G4Section


class Engine(EngineLink):
    """An engine that has served so many requests, and so many more when it is told to stop."""

    def __init__(self, requests: int, meanwhile: int) -> None:
        super().__init__("engine-a")
        self._served = requests
        self._meanwhile = meanwhile
        self.resets = 0

    async def stats(self) -> EngineStats:
        self.latest = EngineStats(requests=self._served)
        return self.latest

    async def reset(self) -> None:
        self.resets += 1
        self._served += self._meanwhile
        await self.stats()

    async def _read_line(self) -> bytes:
        raise NotImplementedError

    def _write_line(self, line: bytes) -> None:
        raise NotImplementedError

    def _gone(self) -> PeerClosedError:
        raise NotImplementedError


class Node(IdleNode):
    """A node that can be asked."""

    def __init__(self, requests: int = 0, meanwhile: int = 0) -> None:
        super().__init__("a")
        self.engine = Engine(requests, meanwhile)

    def addresses(self) -> tuple[ServiceAddress, ...]:
        return (ServiceAddress("a", ServiceName.BLOCK_MANAGER, "http://a"),)


def tier(name: str, capacity: int | None, registered: int = 0) -> dict[str, Any]:
    return {"tier": name, "capacity_blocks": capacity, "registered_blocks": registered, "block_bytes": 1_000}


def client(tiers: list[dict[str, Any]], engine_blocks: int = 192, status: int = 200) -> httpx.AsyncClient:
    pages = {"/v1/tiers": {"tiers": tiers}, "/v1/engines": {"engines": [{"engine": "e", "blocks": engine_blocks}]}}
    return httpx.AsyncClient(
        transport=httpx.MockTransport(lambda request: httpx.Response(status, json=pages[request.url.path]))
    )


@pytest.mark.parametrize("plan", [FULL, SHORT])
async def test_the_sizes_of_a_local_run_fit(plan: Any) -> None:
    sizes = plan.cluster
    tiers = [tier("g2", sizes.g2_blocks), tier("g3", sizes.g3_blocks), tier("g4", None)]
    async with client(tiers, sizes.g1_blocks) as http:
        await require_fitting(plan, http, (Node(),))


def test_bounds_come_from_the_trace() -> None:
    assert SizeBounds.of(FULL) == SizeBounds(least_g1=96, least_g2=342, most_g2=1_052, least_g3=1_618)
    assert SizeBounds.of(SHORT).most_g2 is None


@pytest.mark.parametrize(
    ("tiers", "engine_blocks", "words"),
    [
        ([tier("g2", 341), tier("g3", 2_048), tier("g4", None)], 192, r"341000 bytes.*342000 to 1052000.*G2__CAPACITY"),
        ([tier("g2", 4_096), tier("g3", 2_048), tier("g4", None)], 192, r"G2 has room for 4096 blocks.*G2__CAPACITY"),
        ([tier("g2", 768), tier("g3", 100), tier("g4", None)], 192, r"1618000 or more.*BLOCKYARD_G3__CAPACITY"),
        ([tier("g2", 768), tier("g4", None)], 192, "the run needs G3"),
        ([tier("g2", 768), tier("g3", 2_048)], 192, "BLOCKYARD_G4__ENABLED"),
        ([tier("g2", 768), tier("g3", 2_048), tier("g4", None)], 95, r"for 95 blocks.*--blocks"),
    ],
)
async def test_a_size_that_does_not_fit_names_the_setting(
    tiers: list[dict[str, Any]], engine_blocks: int, words: str
) -> None:
    async with client(tiers, engine_blocks) as http:
        with pytest.raises(ConfigurationError, match=words):
            await require_fitting(FULL, http, (Node(),))


async def test_a_node_that_does_not_answer_properly_is_named() -> None:
    async with client([], status=503) as http:
        with pytest.raises(ServerStartError, match="block-manager-a"):
            await require_fitting(FULL, http, (Node(),))


async def test_a_node_that_does_not_answer_in_time_is_named_with_the_reason() -> None:
    def silence(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("")

    async with httpx.AsyncClient(transport=httpx.MockTransport(silence)) as http:
        with pytest.raises(ServerStartError, match=r"http://a/v1/tiers: ReadTimeout \(server=block-manager-a\)"):
            await require_fitting(FULL, http, (Node(),))


def stored(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    async def stored_bytes(_: pack_damage.PackVandal) -> int:
        return count

    monkeypatch.setattr(pack_damage.PackVandal, "stored_bytes", stored_bytes)


EMPTY = [tier("g2", 768), tier("g3", 2_048), tier("g4", None)]


async def test_a_fresh_stack_is_taken_and_its_engines_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    stored(monkeypatch, 0)
    node = Node()
    async with client(EMPTY) as http:
        await require_fresh(http, (node,), G4Section())
    assert node.engine.resets == 1


@pytest.mark.parametrize(("requests", "meanwhile", "resets"), [(5, 0, 0), (0, 5, 1)])
async def test_the_replay_of_an_engine_that_was_used_goes_on(
    monkeypatch: pytest.MonkeyPatch, requests: int, meanwhile: int, resets: int
) -> None:
    """Only one that begins at this very moment is ended."""
    stored(monkeypatch, 0)
    node = Node(requests, meanwhile)
    async with client(EMPTY) as http:
        with pytest.raises(StackNotFreshError, match=r"started with --replay.*requests=5"):
            await require_fresh(http, (node,), G4Section())
    assert node.engine.resets == resets


@pytest.mark.parametrize(
    ("requests", "tiers", "bytes_stored", "words"),
    [
        (5, EMPTY, 0, r"started with --replay.*engine=engine-a, requests=5"),
        (0, [tier("g2", 768), tier("g3", 2_048, registered=3)], 0, r"tier=g3, blocks=3"),
        (0, EMPTY, 77, r"object store holds blocks.*bytes=77"),
    ],
)
async def test_a_stack_that_has_worked_is_refused(
    monkeypatch: pytest.MonkeyPatch, requests: int, tiers: list[dict[str, Any]], bytes_stored: int, words: str
) -> None:
    stored(monkeypatch, bytes_stored)
    async with client(tiers) as http:
        with pytest.raises(StackNotFreshError, match=words):
            await require_fresh(http, (Node(requests),), G4Section())
