"""The demo engine as a process: one JSON command per line on stdin, JSON events on stdout.

Commands: ``replay`` a range of the trace, ``probe`` one block by key, ``reset`` the own cache, ``stats``, ``quit``.
End of input is ``quit``. Every command is answered by exactly one ``done`` or ``error`` event; ``replay`` also reports
progress. See ``--help``.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import BinaryIO

from blockyard.connectors.client import BlockyardClient, EngineDescription
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.mock.command_loop import CommandLoop
from blockyard.connectors.mock.engine import MockEngine
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS
from blockyard.core.errors import BlockyardError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import EngineId


def main() -> int:
    """Run until ``quit`` or end of input; 0 on a clean end, 1 when the node refused the engine, 2 for wrong usage."""
    options = _options()
    try:
        with open(0, "rb", buffering=0, closefd=False) as commands:
            asyncio.run(_run(options, commands))
    except BlockyardError as error:
        sys.stderr.write(f"blockyard demo engine: {error}\n")
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="blockyard-mock-engine", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="connector socket of the node's block-manager")
    parser.add_argument("--name", required=True, help="engine id")
    parser.add_argument("--blocks", type=int, default=192, help="blocks in the engine's memory (default: 192)")
    parser.add_argument("--block-bytes", type=int, default=131_072, help="bytes per block (default: 131072)")
    parser.add_argument("--model", default="demo-model", help="model name in the identity (default: demo-model)")
    return parser.parse_args()


async def _run(options: argparse.Namespace, commands: BinaryIO) -> None:
    identity = ModelIdentity(
        model=options.model,
        layout_fingerprint="demo",
        engine_block_tokens=TRACE_BLOCK_TOKENS,
        block_tokens=TRACE_BLOCK_TOKENS,
        block_bytes=options.block_bytes,
    )
    description = EngineDescription(engine=EngineId(options.name), identity=identity)
    with EngineMemory(options.blocks, options.block_bytes) as memory:
        async with BlockyardClient(options.socket, description, memory) as client:
            await client.wait_connected(30.0)
            await CommandLoop(MockEngine(client, memory, identity), commands, sys.stdout.buffer).run()


if __name__ == "__main__":
    sys.exit(main())
