"""Staged loads whose caller goes away, or slots that were granted late, do not stay held."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.manager_link import ManagerLink
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import DeadlineExceededError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import EngineId, Executor, RequestId
from blockyard.testing.scripted_manager import WAIT_SECONDS, ScriptedManager, served
from blockyard.wire import connector_channel as channel

RUN = ChainRun(hashlib.sha256(b"row").digest())


@asynccontextmanager
async def connected(path: Path, script: ScriptedManager) -> AsyncIterator[BlockyardClient]:
    with EngineMemory(4, 4_096) as memory:
        description = memory.description(EngineId("e"), ModelIdentity(model="m"), executor=Executor.ENGINE)
        async with served(path, script), BlockyardClient(path, description, memory.guards) as client:
            await client.wait_connected(WAIT_SECONDS)
            yield client


async def test_a_load_whose_caller_goes_before_it_is_opened_is_closed(tmp_path: Path) -> None:
    script, opened = ScriptedManager(), asyncio.Event()

    async def later() -> channel.Reply:
        await opened.wait()
        return channel.LoadOpened(load=7)

    script.answers[channel.OpenLoad] = later
    async with connected(tmp_path / "s", script) as client:
        staging = asyncio.create_task(client.stage_load(RequestId("r"), RUN, ttl_seconds=5.0))
        await script.wait_for(channel.OpenLoad)
        staging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await staging
        opened.set()
        await script.wait_for(channel.CloseLoad)
        assert script.of(channel.CloseLoad) == [channel.CloseLoad(load=7)]


@pytest.mark.parametrize("kind", [channel.OpenLoad, channel.ReserveStore])
async def test_what_may_be_held_under_an_unknown_number_ends_with_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[channel.Request]
) -> None:
    script, opened = ScriptedManager(), asyncio.Event()

    async def later() -> channel.Reply:
        await opened.wait()
        return channel.Done()

    script.answers[kind] = later
    async with connected(tmp_path / "s", script) as client:
        defaults = dict(ManagerLink.call.__kwdefaults__ or {})
        monkeypatch.setattr(ManagerLink.call, "__kwdefaults__", defaults | {"timeout_seconds": 0.02})
        stage = kind is channel.OpenLoad
        call = client.stage_load(RequestId("r"), RUN, ttl_seconds=5.0) if stage else client.reserve_store(1)
        with pytest.raises(DeadlineExceededError):
            await call
        opened.set()
        first = script.sessions[0]
        await asyncio.wait_for(first.closed.wait(), WAIT_SECONDS)
