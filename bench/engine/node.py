"""A node under the engines of a benchmark: real processes, host memory only.

Threading: one event loop, which runs while the node starts and stops; in between its processes need nobody.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

from pydantic import ByteSize, SecretStr

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.run_folder import RunFolder
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import G2Section, G3Section, G4Section, NatsSection, NodeSection, NodeSettings
from blockyard.testing.running_node import RunningNode, running_node


@contextmanager
def node_of(folder: RunFolder, *, block_bytes: int, block_tokens: int, blocks: int) -> Iterator[RunningNode]:
    """A node with this many blocks in host memory; ready."""
    bus = NatsServer(folder)
    bus.start()
    settings = NodeSettings(
        node=NodeSection(folder=folder.path / "node", block_bytes=ByteSize(block_bytes), block_tokens=block_tokens),
        g2=G2Section(capacity=ByteSize(blocks * block_bytes)),
        g3=G3Section(enabled=False),
        g4=G4Section(enabled=False),
        nats=NatsSection(url=SecretStr(bus.url)),
    )
    try:
        with asyncio.Runner() as runner:
            stack = AsyncExitStack()
            services = (ServiceName.BLOCK_MANAGER, ServiceName.OFFLOAD_WORKER)
            node = runner.run(stack.enter_async_context(running_node(settings, *services)))
            try:
                runner.run(node.ready())
                yield node
            finally:
                runner.run(stack.aclose())
    finally:
        bus.kill()
