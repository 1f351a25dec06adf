"""What is remembered of the decisions of engines, for how long, and what is refused."""

import math
from collections import Counter
from typing import Any

import pytest

from blockyard.core.errors import RequestError, RequestNotSeenError
from blockyard.core.miss_reason import MissReason
from blockyard.core.vocabulary import EngineId
from blockyard.testing.clock import FakeClock
from blockyard.wire.codec import MAX_DECISIONS_PER_CALL
from blockyard.wire.connector_channel import RequestDecision
from blockyard_block_manager.decision_log import CAPACITY, ENGINES_PER_REQUEST, DecisionLog
from blockyard_block_manager.loading_switch import LoadingSwitch

ENGINE = EngineId("one")


def decision(request: str = "r", **values: Any) -> RequestDecision:
    usual: dict[str, Any] = {"prompt_tokens": 100, "local_tokens": 16, "reason": "not_stored"}
    return RequestDecision(request=request, **{**usual, **values})


def test_a_reported_decision_is_found_by_its_request() -> None:
    clock = FakeClock()
    log = DecisionLog(clock)
    log.report(ENGINE, 3, [decision(found_tokens={"g2": 32, "g3": 16}, loaded_tokens=32, lookup_ms=0.5)])
    clock.advance(2.5)
    (found,) = log.of("r")
    assert (found.engine, found.dp_rank, found.age_seconds) == (ENGINE, 3, 2.5)
    assert (found.prompt_tokens, found.local_tokens, found.loaded_tokens) == (100, 16, 32)
    assert found.found_tokens == {"g2": 32, "g3": 16}
    assert (found.reason, found.lookup_ms) == (MissReason.NOT_STORED, 0.5)


def test_a_request_that_nobody_reported_was_not_seen() -> None:
    with pytest.raises(RequestNotSeenError, match="not seen here"):
        DecisionLog(FakeClock()).of("r")


def test_the_latest_report_of_an_engine_counts_and_others_stay() -> None:
    log = DecisionLog(FakeClock())
    log.report(ENGINE, 0, [decision(loaded_tokens=1)])
    log.report(EngineId("two"), 0, [decision(loaded_tokens=2)])
    log.report(ENGINE, 0, [decision(loaded_tokens=3)])
    assert [(found.engine, found.loaded_tokens) for found in log.of("r")] == [("two", 2), ("one", 3)]
    assert len(log) == 1


def test_the_request_that_was_reported_longest_ago_is_forgotten_first() -> None:
    log = DecisionLog(FakeClock())
    for number in range(CAPACITY):
        log.report(ENGINE, 0, [decision(str(number))])
    log.report(ENGINE, 0, [decision("0"), decision("new")])
    assert len(log) == CAPACITY
    assert log.of("0")
    assert log.of("new")
    with pytest.raises(RequestNotSeenError):
        log.of("1")


def test_reports_of_one_name_by_many_engines_are_bounded() -> None:
    log = DecisionLog(FakeClock())
    for rank in range(ENGINES_PER_REQUEST + 2):
        log.report(ENGINE, rank, [decision()])
    assert [found.dp_rank for found in log.of("r")] == list(range(2, ENGINES_PER_REQUEST + 2))


def test_reasons_are_counted_and_a_strange_one_is_other() -> None:
    counted: Counter[MissReason] = Counter()
    log = DecisionLog(FakeClock(), lambda reason, count: counted.update({reason: count}))
    log.report(ENGINE, 0, [decision("a"), decision("b"), decision("c", reason="of a later version")])
    assert counted == {MissReason.NOT_STORED: 2, MissReason.OTHER: 1}
    assert log.of("c")[0].reason is MissReason.OTHER


@pytest.mark.parametrize(
    "wrong",
    [
        {"request": ""},
        {"request": "r" * 257},
        {"reason": "r" * 65},
        {"found_tokens": {"g1": 1}},
        {"found_tokens": {"g2": -1}},
        {"prompt_tokens": -1},
        {"local_tokens": 1 << 41},
        {"loaded_tokens": -1},
        {"lookup_ms": math.nan},
        {"lookup_ms": -1.0},
    ],
)
def test_a_message_with_a_decision_that_cannot_be_is_refused_whole(wrong: dict[str, Any]) -> None:
    counted: Counter[MissReason] = Counter()
    log = DecisionLog(FakeClock(), lambda reason, count: counted.update({reason: count}))
    with pytest.raises(RequestError):
        log.report(ENGINE, 0, [decision("right"), decision(**{"request": "r", **wrong})])
    assert (len(log), len(counted)) == (0, 0)


def test_a_message_with_too_many_decisions_is_refused() -> None:
    log = DecisionLog(FakeClock())
    with pytest.raises(RequestError, match="too many"):
        log.report(ENGINE, 0, [decision(str(number)) for number in range(MAX_DECISIONS_PER_CALL + 1)])
    assert len(log) == 0


def test_loads_are_on_until_they_are_switched_off_and_followers_hear_each_change_once() -> None:
    switch = LoadingSwitch()
    heard: list[bool] = []
    switch.follow(heard.append)
    assert switch.enabled
    assert not switch.switch(True)
    assert switch.switch(False)
    assert not switch.switch(False)
    assert not switch.enabled
    assert switch.switch(True)
    assert heard == [True, False, True]


def test_a_request_is_found_by_the_name_that_its_client_knows() -> None:
    log = DecisionLog(FakeClock())
    log.report(ENGINE, 0, [decision("cmpl-7f21-0-aa"), decision("cmpl-7f2-0-bb")])
    log.report(ENGINE, 0, [decision("cmpl-7f21-0-cc")])

    assert [found.request for found in log.of("cmpl-7f21")] == ["cmpl-7f21-0-cc"]
    with pytest.raises(RequestNotSeenError):
        log.of("cmpl-7f")
    with pytest.raises(RequestNotSeenError):
        log.of("")
