"""Store four blocks and load them again. Usage: engine.py <socket of the block-manager>"""

import asyncio
import sys
from pathlib import Path

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.errors import BlockyardError
from blockyard.core.hashing import content_run
from blockyard.core.identity import ModelIdentity, SequenceScope
from blockyard.core.vocabulary import EngineBlockId, EngineId, RequestId

BLOCK_TOKENS, BLOCK_BYTES = 512, 131_072  # as the node has them: node.block_tokens, node.block_bytes


async def main(socket: Path) -> None:
    identity = ModelIdentity(model="example", block_tokens=BLOCK_TOKENS, block_bytes=BLOCK_BYTES)
    run = content_run(identity.digest(), SequenceScope(), range(4 * BLOCK_TOKENS), BLOCK_TOKENS)
    computed = [EngineBlockId(block) for block in range(4)]
    loaded = [EngineBlockId(block) for block in range(4, 8)]
    with EngineMemory(blocks=8, block_bytes=BLOCK_BYTES) as memory:
        engine = memory.description(EngineId("example"), identity)
        async with BlockyardClient(socket, engine, memory.guards, memory=memory.rank) as client:
            await client.wait_connected(10.0)
            # A forward pass fills its blocks, then names them. The node copies them by itself.
            for block in computed:
                memory.view(block)[:] = block + 1
            await client.register(run, computed)
            # A later request with the same tokens asks, leases, and loads into other blocks.
            while not all(answer.is_hit for answer in (await client.lookup(run))[0]):  # [0]: the only KV group
                await asyncio.sleep(0.05)
            request = RequestId("request-1")
            held = await client.reserve(request, run)
            memory.raise_guards(loaded)  # before blocks are rewritten, always: nothing stores them as what they were
            await client.deregister(loaded)
            result = await client.load(request, run, loaded, ttl_seconds=5.0)
            same = all((memory.view(a) == memory.view(b)).all() for a, b in zip(computed, loaded, strict=True))
            print(f"held {held}, usable {result.usable}, statuses {[status.name for status in result.statuses]}")
            print(f"sources {[source and source.name for source in result.sources]}, same bytes {same}")
            await client.release(request)


if len(sys.argv) != 2:
    sys.exit(__doc__)
try:
    asyncio.run(main(Path(sys.argv[1])))
except BlockyardError as error:
    sys.exit(f"{error}")
