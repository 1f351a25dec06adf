"""A stack that has worked before, or whose sizes show nothing, is refused with the setting to change."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from blockyard.cli import pack_damage
from blockyard.cli.compose.fitness import SizeBounds, require_fitting, require_fresh
from blockyard.cli.demo_plan import FULL, SHORT
from blockyard.cli.engine_events import EngineStats
from blockyard.cli.engine_link import EngineLink
from blockyard.cli.failures import StackNotFreshError
from blockyard.cli.slab_damage import SlabBlock
from blockyard.cli.stage import ServiceAddress
from blockyard.core.errors import ConfigurationError, PeerClosedError, ServerStartError
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import G4Section


class Engine(EngineLink):
    """An engine that has served so many requests."""

    def __init__(self, requests: int) -> None:
        super().__init__("engine-a")
        self._served = requests
        self.resets = 0

    async def reset(self) -> None:
        self.resets += 1
        self.latest = EngineStats(requests=self._served)

    async def _read_line(self) -> bytes:
        return b""

    def _write_line(self, line: bytes) -> None:
        raise NotImplementedError

    def _gone(self) -> PeerClosedError:
        raise NotImplementedError


class Node:
    """A node that can be asked."""

    name = "a"
    running = True

    def __init__(self, requests: int = 0) -> None:
        self.engine: Engine | None = Engine(requests)

    def addresses(self) -> tuple[ServiceAddress, ...]:
        return (ServiceAddress("a", ServiceName.BLOCK_MANAGER, "http://a"),)

    async def kill(self) -> None:
        raise NotImplementedError

    async def kill_services(self) -> None:
        raise NotImplementedError

    async def start_services(self) -> None:
        raise NotImplementedError

    async def wait_ready(self, http: httpx.AsyncClient, say: Callable[[str], None]) -> None:
        raise NotImplementedError

    async def slab_blocks(self) -> list[SlabBlock]:
        raise NotImplementedError

    async def flip_slab_byte(self, block: SlabBlock) -> None:
        raise NotImplementedError


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
    assert node.engine is not None
    assert node.engine.resets == 1


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
