"""Whatever the scheduler's thread ordered has begun when the engine rests, and whoever gets blocks, guards rise."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.connectors.vllm.client_turns import calls_in_turns

from blockyard.connectors.engine_description import EngineDescription
from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.vllm.scheduler_half import SchedulerHalf
from blockyard.connectors.vllm.settings import ConnectorSettings
from blockyard.connectors.vllm.step_plan import StepReport
from blockyard.connectors.vllm.tracked_request import EngineFacts
from blockyard.core.identity import ModelIdentity
from blockyard.core.kv_groups import KvGroup
from blockyard.core.vocabulary import EngineBlockId, EngineId

BLOCKS, BLOCK, ROW = 32, 4, 8
GROUP = KvGroup(engine_block_tokens=BLOCK)


@dataclass
class Request:
    """A request of the engine."""

    request_id: str = "r"
    num_tokens: int = 9
    num_preemptions: int = 0
    kv_transfer_params: Mapping[str, Any] | None = None
    block_hashes: list[bytes] = field(default_factory=lambda: [b"a" * 32, b"b" * 32])


class CopyingEngine:
    """An engine with one rank that copies by itself, and whose client's thread runs when the test says so."""

    def __init__(self) -> None:
        guards = EngineGuards(BLOCKS)
        identity = ModelIdentity(model="m", block_tokens=ROW, engine_block_tokens=BLOCK)
        described = EngineDescription(engine=EngineId("e"), identity=identity, blocks=BLOCKS, groups=(GROUP,))
        self.calls, self.client, self.thread = calls_in_turns(described, guards)
        facts = EngineFacts(groups=(GROUP,), block_tokens=ROW, hash_tokens=BLOCK, row_bytes=1, ranks=1)
        settings = ConnectorSettings(socket=Path("/nowhere"), block_tokens=ROW, hold_ms=0)
        self.guards = guards
        self.half = SchedulerHalf(settings, facts, guards, self.calls, copies=True, clock=lambda: 1.0)
        self.client.slots = list(range(64))

    def step(self, report: StepReport | None = None, **scheduled: Any) -> None:
        """A step, of which the connector hears only where a rank has something to say, as the engine has it."""
        plan = self.half.plan_step(_scheduled(**scheduled))
        assert plan is not None
        if report is not None:
            self.half.step_ended(report, set(), set())

    def close(self) -> None:
        self.half.close()


def _scheduled(**cached: Any) -> Any:
    nobody: dict[str, Any] = {"req_ids": [], "resumed_req_ids": set(), "new_block_ids": [], "num_computed_tokens": []}
    return SimpleNamespace(
        scheduled_new_reqs=[],
        scheduled_cached_reqs=SimpleNamespace(**{**nobody, **cached}),
        num_scheduled_tokens={},
        total_num_scheduled_tokens=0,
    )


@pytest.fixture
def engine() -> Iterator[CopyingEngine]:
    made = CopyingEngine()
    yield made
    made.close()


def test_slots_that_come_when_the_last_request_is_gone_are_given_back_at_once(engine: CopyingEngine) -> None:
    engine.half.on_new_request(Request())
    engine.step(StepReport(attachments={0: 1}))
    engine.step()
    assert engine.half.busy, "slots are asked for"
    assert engine.half.finished("r") is False
    engine.thread.turn()
    engine.step()
    assert not engine.half.busy, "the engine rests: no step follows"
    engine.thread.turn()
    assert engine.client.returned == list(range(64)), "a clear of the node's memory would wait for them"


@pytest.mark.parametrize("last_word", ["the ranks say nothing", "an unknown request ends"])
def test_slots_that_nobody_can_use_are_given_back_whatever_brings_them_along(
    engine: CopyingEngine, last_word: str
) -> None:
    engine.half.on_new_request(Request())
    engine.step(StepReport(attachments={0: 1}))
    engine.step()
    engine.half.step_ended(StepReport(attachments={0: 2}), set(), set())
    engine.half.finished("r")
    engine.thread.turn()
    if last_word == "the ranks say nothing":
        engine.half.step_ended(None, set(), set())
    else:
        engine.half.finished("nobody")
    assert not engine.half.busy
    engine.thread.turn()
    assert engine.client.returned == list(range(64))


def test_blocks_that_go_to_a_request_that_nobody_told_of_change_their_guards_too(engine: CopyingEngine) -> None:
    engine.step(req_ids=["stranger"], new_block_ids=[([5, 6],)], num_computed_tokens=[0])
    engine.thread.turn()
    assert [engine.guards.guard(EngineBlockId(block)) for block in (5, 6)] == [1, 1]
    assert engine.client.told == ["deregister"]
