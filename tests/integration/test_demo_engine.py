"""The demo engine by itself on a real node: it is there before its node, replays, and then obeys a controller."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.integration.engine_kit import BLOCK_BYTES, BM, OW, local_settings, node_folder

from blockyard.cli.compose.engine_connection import EngineConnection
from blockyard.cli.embedded.ports import free_ports
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS
from blockyard.testing.running_node import RunningNode

__all__ = ["node_folder"]

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def node(node_folder: Path) -> AsyncIterator[RunningNode]:
    """A node without G4, not started."""
    settings = local_settings(node_folder)
    section = settings.node.model_copy(update={"block_tokens": TRACE_BLOCK_TOKENS})
    async with httpx.AsyncClient(timeout=5.0) as http:
        yield RunningNode(settings.model_copy(update={"node": section}), http)


async def test_it_waits_for_its_node_replays_and_obeys_a_controller(node: RunningNode) -> None:
    (port,) = free_ports(1)
    options = ("--socket", str(node.engine_socket), "--name", "e", "--blocks", "24", "--block-bytes", str(BLOCK_BYTES))
    engine = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "blockyard.connectors.mock", *options),
        *("--listen", f"127.0.0.1:{port}", "--replay", "--pace", "0"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert engine.stderr is not None
    try:
        async with asyncio.timeout(40):
            assert b"waiting for the block-manager" in await engine.stderr.readline()
            node.start(BM, OW)
            connection = EngineConnection("e", f"127.0.0.1:{port}")
            await connection.connect()
            with contextlib.closing(connection):
                while (await connection.stats()).requests < 50:
                    await asyncio.sleep(0.05)
                await connection.reset()
                replayed = connection.latest.requests
                stats = await connection.replay(0, 3)
                assert stats.requests == replayed + 3
                # What it computed is stored in the background.
                while not (stats := await connection.replay(0, 3)).verified.G2:
                    await connection.reset()
                assert stats.wrong_bytes == 0
            engine.send_signal(signal.SIGTERM)
            said = (await engine.stderr.read()).decode()
            assert await engine.wait() == 0
    finally:
        if engine.returncode is None:
            engine.kill()
            await engine.wait()
        node.kill(BM, OW)
    assert "a controller has taken over: the replay is stopped for good" in said
    assert said.endswith("e: stopped\n")
