"""``blockyard why`` and ``blockyard loads`` on a node of real processes, with an engine connected."""

import asyncio
import sysconfig
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from pydantic import ByteSize, SecretStr

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.exit_codes import EXIT_FAILED, EXIT_OK
from blockyard.cli.run_folder import RunFolder
from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import UnavailableError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import Availability, EngineBlockId, EngineId, ItemStatus, RequestId
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import G2Section, G3Section, G4Section, NatsSection, NodeSection, NodeSettings
from blockyard.runtime.settings_source import environment_of
from blockyard.testing.blocks import chain
from blockyard.testing.running_node import RunningNode, eventually, running_node
from blockyard.wire.connector_channel import RequestDecision

BLOCK_BYTES = 4_096
IDENTITY = ModelIdentity(model="m", block_bytes=BLOCK_BYTES)
RUN: ChainRun = chain("a", 4)
COMPUTED, LOADED = (tuple(EngineBlockId(block) for block in range(first, first + 4)) for first in (0, 4))
SERVICES = (ServiceName.OFFLOAD_WORKER, ServiceName.BLOCK_MANAGER)


@dataclass
class Connected:
    """A node, an engine that has stored its blocks there, and what it heard of the switch."""

    node: RunningNode
    client: BlockyardClient
    memory: EngineMemory
    loading: list[bool] = field(default_factory=list)

    async def command(self, *words: str) -> tuple[int | None, str, str]:
        """Run the command as an operator does on this machine: the settings say where the node is."""
        run = await asyncio.create_subprocess_exec(
            str(Path(sysconfig.get_path("scripts")) / "blockyard"),
            *words,
            env=environment_of(self.node.settings),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await run.communicate()
        return run.returncode, out.decode(), err.decode()

    async def found(self) -> tuple[Availability, ...]:
        return (await self.client.lookup(RUN))[0]


@asynccontextmanager
async def connected(run_folder: RunFolder, nats: NatsServer) -> AsyncIterator[Connected]:
    folder = run_folder.path / f"n{uuid4().hex[:6]}"
    folder.mkdir()
    settings = NodeSettings(
        node=NodeSection(
            name=folder.name,
            namespace="t",
            folder=folder,
            block_bytes=ByteSize(BLOCK_BYTES),
            block_tokens=IDENTITY.block_tokens,
        ),
        g2=G2Section(capacity=ByteSize(1 << 20)),
        g3=G3Section(enabled=False),
        g4=G4Section(enabled=False),
        nats=NatsSection(url=SecretStr(nats.url)),
    )
    heard: list[bool] = []
    with EngineMemory(8, BLOCK_BYTES) as memory:
        async with running_node(settings, *SERVICES) as node:
            await node.ready()
            description = memory.description(EngineId("e"), IDENTITY)
            async with BlockyardClient(
                node.engine_socket, description, memory.guards, memory=memory.rank, on_loading=heard.append
            ) as client:
                await client.wait_connected(10.0)
                for block in COMPUTED:
                    memory.view(block)[:] = block + 1
                await client.register(RUN, COMPUTED)
                made = Connected(node, client, memory, heard)

                async def stored() -> bool:
                    return all(answer.is_hit for answer in await made.found())

                await eventually(stored, "blocks are in G2")
                yield made


async def test_an_operator_asks_why_and_switches_loads_while_the_engine_is_connected(
    run_folder: RunFolder, nats_server: NatsServer
) -> None:
    async with connected(run_folder, nats_server) as there:
        decision = RequestDecision(request="r-1", prompt_tokens=90, local_tokens=16, reason="lookup_late")
        await there.client.report_decisions([decision])
        code, said, _ = await there.command("why", "r-1")
        assert code == EXIT_OK
        assert said.startswith("request r-1 at engine e, ")
        assert "(lookup_late)" in said
        code, _, complaint = await there.command("why", "r-2")
        assert code == EXIT_FAILED
        assert "not seen here" in complaint
        assert there.loading == [True]

        assert (await there.command("loads", "off"))[0] == EXIT_OK
        assert await there.found() == (Availability.MISS,) * 4
        assert there.loading == [True, False]
        there.memory.raise_guards(LOADED)
        refused = await there.client.load(RequestId("r-3"), RUN, LOADED, ttl_seconds=5.0)
        assert refused.statuses == (ItemStatus.UNKNOWN,) * 4
        assert there.client.unsettled_blocks == frozenset()

        assert await there.command("loads", "on") == (EXIT_OK, "loads are on\n", "")
        assert await there.found() == (Availability.G2,) * 4
        assert there.loading == [True, False, True]
        result = await there.client.load(RequestId("r-3"), RUN, LOADED, ttl_seconds=5.0)
        assert result.usable == 4
        assert all((there.memory.view(a) == there.memory.view(b)).all() for a, b in zip(COMPUTED, LOADED, strict=True))


async def test_a_restart_switches_loads_on_and_forgets_requests(run_folder: RunFolder, nats_server: NatsServer) -> None:
    async with connected(run_folder, nats_server) as there:
        await there.client.report_decisions(
            [RequestDecision(request="r-1", prompt_tokens=90, local_tokens=16, reason="not_stored")]
        )
        assert (await there.command("loads", "off"))[0] == EXIT_OK
        there.node.kill(ServiceName.BLOCK_MANAGER)
        there.node.start(ServiceName.BLOCK_MANAGER)
        await there.node.ready()

        async def hits() -> bool:
            try:
                return await there.found() == (Availability.G2,) * 4
            except UnavailableError:
                return False

        await eventually(hits, "the engine is connected again and finds its blocks")
        assert there.loading[-1]
        assert (await there.command("why", "r-1"))[0] == EXIT_FAILED
