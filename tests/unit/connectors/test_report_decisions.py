"""What an engine tells its node about decisions: all of them, in messages that are not too large."""

from pathlib import Path

import pytest

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.errors import UnavailableError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import EngineId
from blockyard.testing.scripted_manager import WAIT_SECONDS, ScriptedManager, served
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import MAX_DECISIONS_PER_CALL

DECISIONS = [
    channel.RequestDecision(request=str(number), prompt_tokens=9, local_tokens=0, reason="not_stored")
    for number in range(MAX_DECISIONS_PER_CALL + 1)
]


async def test_decisions_go_out_in_parts_and_none_where_there_are_none(tmp_path: Path) -> None:
    script, path = ScriptedManager(), tmp_path / "c.sock"
    with EngineMemory(8, 4_096) as memory:
        description = memory.description(EngineId("e"), ModelIdentity(model="m"))
        async with (
            served(path, script),
            BlockyardClient(path, description, memory.guards, memory=memory.rank) as client,
        ):
            await client.wait_connected(WAIT_SECONDS)
            await client.report_decisions([])
            assert script.of(channel.ReportDecisions) == []
            await client.report_decisions(DECISIONS)
    told = [message for message in script.seen if isinstance(message, channel.ReportDecisions)]
    assert [len(message.decisions) for message in told] == [MAX_DECISIONS_PER_CALL, 1]
    assert [decision for message in told for decision in message.decisions] == DECISIONS


async def test_without_a_node_nothing_is_kept(tmp_path: Path) -> None:
    with EngineMemory(8, 4_096) as memory:
        description = memory.description(EngineId("e"), ModelIdentity(model="m"))
        async with BlockyardClient(tmp_path / "c.sock", description, memory.guards, memory=memory.rank) as client:
            with pytest.raises(UnavailableError):
                await client.report_decisions(DECISIONS[:1])
