"""Nodes and engines of these tests put together: who looks for whom where, and what the plain engine answers.

Threading: the event loop of the test, in the main thread.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from prometheus_client.parser import text_string_to_metric_families
from pydantic import ByteSize, SecretStr
from tests.engines.engine_cases import BLOCK_TOKENS, OUTPUT_TOKENS, Model, options
from tests.engines.engine_process import Engine, EngineMaker, Generated

from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.cli.run_folder import RunFolder
from blockyard.core.vocabulary import Tier
from blockyard.runtime.node_folder import NodeFolder, ServiceName
from blockyard.runtime.settings import (
    G2Section,
    G3Section,
    G4Section,
    NatsSection,
    NodeSection,
    NodeSettings,
    RedisSection,
)
from blockyard.testing.running_node import RunningNode, eventually, running_node

BM, OW, RT = ServiceName.BLOCK_MANAGER, ServiceName.OFFLOAD_WORKER, ServiceName.REMOTE_TIER
_WAIT_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.01
_databases = count(1)


@dataclass(frozen=True, kw_only=True)
class EngineSetup:
    """One configuration of an engine; it looks for its node where ``node`` lies."""

    model: Model
    node: str = "a"
    executor: str = "mapped"
    ranks: int = 1
    llm: Mapping[str, Any] = field(default_factory=dict)
    """More options of the engine."""
    connector: Mapping[str, Any] = field(default_factory=dict)
    """More settings of the connector."""

    @property
    def key(self) -> str:
        """Tells it from others."""
        return f"{self.model.name}-{self.node}-{self.executor}-{self.ranks}-{sorted(self.llm.items())}-{self.connector}"


class Engines:
    """All engines of the session."""

    def __init__(self, folder: RunFolder, maker: EngineMaker, models: Path) -> None:
        """Nothing runs yet."""
        self._folder = folder
        self._maker = maker
        self._models = models
        self._running: dict[str, Engine] = {}
        self._numbers: dict[str, int] = {}
        self._plain: dict[str, Engine] = {}
        self._expected: dict[tuple[object, ...], tuple[tuple[int, ...], ...]] = {}

    def node_folder(self, setup: EngineSetup) -> Path:
        """Where the node of an engine lies: engines share none, since those of earlier tests still look for theirs."""
        number = self._numbers.setdefault(setup.key, len(self._numbers))
        return self._folder.path / f"n{number}{setup.node}"

    def start(self, setup: EngineSetup) -> Engine:
        """An engine of its own, ended by the caller."""
        folder = NodeFolder.of(NodeSettings(node=NodeSection(folder=self.node_folder(setup))))
        connector = {
            "kv_connector": "BlockyardConnector",
            "kv_connector_module_path": "blockyard.connectors.vllm.connector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {
                "blockyard.socket": str(folder.service(BM).socket),
                "blockyard.block_tokens": BLOCK_TOKENS,
                "blockyard.executor": setup.executor,
                "blockyard.model": setup.model.name,
                "blockyard.lookup_wait_ms": 2_000,
                "blockyard.load_timeout_ms": 10_000,
                # Computing is cheap for models this small.
                "blockyard.weigh_loads": False,
                **setup.connector,
            },
        }
        return self._make(f"{setup.model.name}-{setup.executor}", setup.model, setup.ranks, setup.llm, connector)

    def shared(self, setup: EngineSetup) -> Engine:
        """The engine of a configuration, started when first asked for."""
        if (engine := self._running.get(setup.key)) is None:
            engine = self._running[setup.key] = self.start(setup)
        return engine

    def forget(self, setup: EngineSetup) -> None:
        """End an engine that a test has broken or wants no more."""
        if (engine := self._running.pop(setup.key, None)) is not None:
            engine.kill()

    async def expected(
        self, setup: EngineSetup, prompts: Sequence[Sequence[int]], tokens: int = OUTPUT_TOKENS
    ) -> tuple[tuple[int, ...], ...]:
        """What the engine answers to prompts without Blockyard, one after the other, on one rank."""
        found: list[tuple[int, ...]] = []
        for ids in prompts:
            key = (setup.model, tuple(ids), tokens)
            if key not in self._expected:
                self._expected[key] = (await self._plain_engine(setup.model).generate([ids], tokens)).tokens
            found += self._expected[key]
        return tuple(found)

    async def goes_on_after_a_prefix(self, model: Model) -> bool:
        """Whether the engine can compute the rest of a prompt, by its own word."""
        return bool((await self._plain_engine(model).ask("chunks"))["chunks"])

    def close(self) -> None:
        """End all."""
        for engine in (*self._running.values(), *self._plain.values()):
            engine.close()

    def _plain_engine(self, model: Model) -> Engine:
        if model.name not in self._plain:
            more = {"enable_prefix_caching": False}
            self._plain[model.name] = self._make(f"{model.name}-plain", model, 1, more, None)
        return self._plain[model.name]

    def _make(
        self, name: str, model: Model, ranks: int, more: Mapping[str, Any], connector: dict[str, Any] | None
    ) -> Engine:
        parallel = {"tensor_parallel_size": ranks, "distributed_executor_backend": "mp"} if ranks > 1 else {}
        given = options(model, str(self._models), **parallel, **more)
        if connector is not None:
            given["connector"] = connector
        engine = self._maker.make(name, given)
        engine.wait_ready()
        return engine


@dataclass(frozen=True)
class Place:
    """A node and the engine at it."""

    node: RunningNode
    engine: Engine
    engines: Engines
    setup: EngineSetup

    async def check(self, prompts: Sequence[Sequence[int]], cached: int | Sequence[int], **more: Any) -> Generated:
        """Generate; tokens are those of the engine without Blockyard, and so many prompt tokens came from a cache."""
        found = await self.generate(prompts, **more)
        await self.same_tokens(prompts, found, more.get("tokens", OUTPUT_TOKENS))
        stated = (cached,) * len(prompts) if isinstance(cached, int) else tuple(cached)
        assert found.cached == stated, f"{found.cached} cached tokens instead of {stated}; loads: {await self.loads()}"
        return found

    async def same_tokens(
        self, prompts: Sequence[Sequence[int]], found: Generated, tokens: int = OUTPUT_TOKENS
    ) -> None:
        """See that outputs are those of the engine without Blockyard."""
        assert found.finish == ("length",) * len(prompts), self.engine.log()
        wanted = await self.engines.expected(self.setup, prompts, tokens)
        assert found.tokens == wanted, "tokens differ from those of the engine without Blockyard"

    def begin(self, prompts: Sequence[Sequence[int]], **more: Any) -> asyncio.Task[Generated]:
        """Generate beside what the test does meanwhile, which must ask the engine nothing else."""
        return asyncio.create_task(self.generate(prompts, **more))

    @asynccontextmanager
    async def loading_while_frozen(
        self, service: ServiceName, prompts: Sequence[Sequence[int]]
    ) -> AsyncIterator[asyncio.Task[Generated]]:
        """With a service that stands still and a load of these prompts that waits for it."""

        async def loading() -> bool:
            page = await self.node.get("/v1/nodes")
            return page is not None and page["this"]["open_loads"] > 0

        with self.node.hanging(service):
            running = self.begin(prompts)
            await eventually(loading, "a load is under way")
            yield running

    async def generate(self, prompts: Sequence[Sequence[int]], **more: Any) -> Generated:
        """Generate; all prompts at once where the engine can do that."""
        if self.setup.model.batches:
            return await self.engine.generate(prompts, **more)
        parts = [await self.engine.generate([ids], **more) for ids in prompts]
        return Generated(
            tokens=tuple(part.tokens[0] for part in parts),
            cached=tuple(part.cached[0] for part in parts),
            finish=tuple(part.finish[0] for part in parts),
            seconds=sum(part.seconds for part in parts),
        )

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Let the engine step until a condition holds."""
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                while not await condition():
                    await self.engine.step()
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise AssertionError(f"waited in vain: {what}\n{await self.node.get('/v1/tiers')}") from None

    async def with_new_engine(self) -> "Place":
        """The same node with another engine of the same configuration, in place of one that ended."""
        place = Place(self.node, self.engines.shared(self.setup), self.engines, self.setup)
        await place.mapped()
        return place

    async def mapped(self) -> None:
        """Wait until the node can reach the memory of the engine, or the ranks of the engine that of the node."""
        sign = "complete" if self.setup.executor == "engine" else "mapped"

        async def holds() -> bool:
            page = await self.node.get("/v1/engines")
            return page is not None and [entry[sign] for entry in page["engines"]] == [True]

        await self.until(holds, "the node has mapped the engine")

    async def stored(self, rows: int, *tiers: Tier, or_more: bool = False) -> None:
        """Wait until tiers hold so many rows, and no job runs.

        Or more: how many rows of a sliding window are stored before it has passed them is a matter of time. Then the
        tiers hold as many, and all that the engine still has.
        """

        async def holds() -> bool:
            page = await self.node.get("/v1/nodes")
            if page is None or any(worker["open_jobs"] for worker in page["this"]["workers"]):
                return False
            held = [await self.node.registered(tier.label) for tier in tiers]
            if or_more:
                return min(held) == max(held) >= max(rows, await self.node.registered(Tier.G1.label))
            return held == [rows] * len(tiers)

        await self.until(holds, f"{rows} rows in {', '.join(tier.label for tier in tiers)}")

    async def loads(self) -> dict[tuple[str, str], int]:
        """Rows of finished loads so far in this life of the block-manager, by tier and status."""
        url = self.node.folder.service(BM).read_http()
        text = (await self.node.http.get(f"{url}/metrics")).text
        return {
            (sample.labels["tier"], sample.labels["status"]): int(sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "blockyard_load_blocks_total" and sample.value
        }

    async def clear(self, tier: Tier) -> None:
        """Empty a tier."""
        answer = await self.node.post(f"/v1/tiers/{tier.label}:clear")
        assert answer.status_code == 200, answer.text

    async def switch_loading(self, *, on: bool) -> None:
        """Switch loads of the node, and wait until the engine follows."""
        url = self.node.folder.service(BM).read_http()
        answer = await self.node.http.put(f"{url}/v1/loading", json={"enabled": on})
        assert answer.status_code == 200, answer.text


class Nodes:
    """Makes nodes where engines look for them."""

    def __init__(self, engines: Engines, valkey: ValkeyServer, store: SeaweedfsServer) -> None:
        """Nothing runs yet."""
        self._engines = engines
        self._valkey = valkey
        self._store = store

    def shared_store(self) -> dict[str, Any]:
        """Sections of a store and its index that nothing is in yet; for all nodes of a test."""
        return {
            "g4": G4Section(
                endpoint_url=self._store.url,
                access_key=SecretStr(self._store.access_key),
                secret_key=SecretStr(self._store.secret_key),
                bucket=f"b{uuid4().hex[:12]}",
                tail_idle_seconds=0.2,
            ),
            "redis": RedisSection(url=SecretStr(f"{self._valkey.url.rsplit('/', 1)[0]}/{next(_databases)}")),
        }

    def settings(
        self, setup: EngineSetup, *, g2_rows: int = 64, g3_rows: int = 128, shared: Mapping[str, Any] | None = None
    ) -> NodeSettings:
        """Settings of a node for an engine; without ``shared`` it has local tiers only."""
        folder = self._engines.node_folder(setup)
        row = setup.model.block_bytes
        settings = NodeSettings(
            node=NodeSection(name=folder.name, folder=folder, block_bytes=ByteSize(row), block_tokens=BLOCK_TOKENS),
            g2=G2Section(capacity=ByteSize(g2_rows * row)),
            g3=G3Section(capacity=ByteSize(g3_rows * row)),
            g4=G4Section(enabled=False),
            nats=NatsSection(url=SecretStr("nats://127.0.0.1:1"), timeout_seconds=1.0),
        )
        return settings if shared is None else settings.model_copy(update=dict(shared))

    @asynccontextmanager
    async def place(self, setup: EngineSetup, settings: NodeSettings | None = None) -> AsyncIterator[Place]:
        """A fresh node with the engine of a configuration at it, whose own prefix cache is empty."""
        settings = settings or self.settings(setup)
        folder = self._engines.node_folder(setup)
        services = (BM, OW, RT) if settings.g4.enabled else (BM, OW)
        if folder.exists():
            shutil.rmtree(folder)
        async with running_node(settings, *services) as node:
            engine = self._engines.shared(setup)
            try:
                await engine.reset(connector=True)
                await node.ready("nats", "node-lease")
                place = Place(node, engine, self._engines, setup)
                await place.mapped()
                yield place
            except BaseException as error:
                error.add_note(f"== {engine.name}\n{engine.log()}")
                # Whatever it holds now, the next test gets another.
                self._engines.forget(setup)
                raise
