"""Settings, engines that are refused, requests that stay out, several KV groups, and life beside other connectors."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.engines.contract.engine_parts import BLOCK, BLOCKS, ROW, Engine, table
from vllm.distributed.kv_transfer import kv_transfer_state
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole

from blockyard.connectors.vllm.connector import BlockyardConnector
from blockyard.connectors.vllm.engine_log import HandOn
from blockyard.core.errors import ConfigurationError, LayoutMismatchError, StartupError
from blockyard.core.kv_groups import NO_PAGE

Make = Callable[..., Engine]


# --- settings -----------------------------------------------------------------------------------------------------
def test_an_unknown_setting_is_refused_with_the_nearest_known_one(make_engine: Make) -> None:
    with pytest.raises(ConfigurationError, match=r"blockyard\.block_tokens.*blockyard\.block_token\b"):
        make_engine(extra={"blockyard.block_token": 64})


def test_blocks_that_are_no_whole_number_of_engine_blocks_are_refused(make_engine: Make) -> None:
    with pytest.raises(ConfigurationError, match="whole number of engine blocks"):
        make_engine(extra={"blockyard.block_tokens": 3 * BLOCK + 1})


def test_a_failure_policy_that_ends_requests_is_refused(make_engine: Make) -> None:
    with pytest.raises(ConfigurationError, match="kv_load_failure_policy"):
        make_engine(policy="fail")


def test_an_engine_that_cannot_place_its_memory_is_refused_by_name(
    make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(KVConnectorBase_V1, "get_mem_pool_context")
    with pytest.raises(ConfigurationError, match=r"where its KV cache lies.*blockyard\.executor"):
        make_engine()
    make_engine(extra={"blockyard.executor": "engine"})


def test_an_engine_that_cannot_hear_of_failed_loads_of_several_groups_is_refused_by_name(
    make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(KVConnectorBase_V1, "get_transfer_results")
    with pytest.raises(ConfigurationError, match="several KV groups"):
        make_engine(windows=(0, ROW))
    make_engine()


def test_a_connector_that_is_switched_off_does_nothing(make_engine: Make) -> None:
    engine = make_engine(extra={"blockyard.enabled": False})
    engine.request("a", 2 * ROW + 5)
    assert engine.step().tokens == {"a": 2 * ROW + 5}
    engine.run()
    assert engine.half is None
    assert not engine.node.lookups
    assert engine.free == engine.free_at_start


def test_a_request_that_stays_out_is_neither_looked_up_nor_registered(engine: Engine) -> None:
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW + 5, parameters={"blockyard": "off"})
    assert engine.step().tokens == {"a": 2 * ROW + 5}
    engine.check_nothing_is_left()
    assert not engine.node.lookups
    assert not engine.node.registered
    assert engine.node.deregistered, "its blocks were somebody else's before"
    assert engine.node.decisions[0].reason == "request_opted_out"


# --- starts that fail ---------------------------------------------------------------------------------------------
def test_a_rank_refuses_whatever_the_scheduler_would(engine: Engine) -> None:
    """The engine makes it first, and keeps it for the next start in the process where this one fails after that."""
    engine.config.kv_transfer_config.kv_connector_extra_config["blockyard.block_tokens"] = BLOCK + 1
    with pytest.raises(ConfigurationError, match="whole number of engine blocks"):
        BlockyardConnector(engine.config, KVConnectorRole.WORKER, engine.kv_config)


def test_a_rank_whose_memory_is_refused_is_not_kept_for_the_next_start(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_transfer_state, "_KV_CONNECTOR_AGENT", engine.rank)
    with pytest.raises(LayoutMismatchError, match="does not lie in the memory"):
        engine.rank.register_kv_caches({"layer0": torch.zeros(BLOCKS, 2, BLOCK * 64)})
    assert not kv_transfer_state.has_kv_transfer_group()


def test_a_rank_of_an_earlier_start_is_refused_by_name(engine: Engine) -> None:
    assert engine.rank.get_mem_pool_context() is not None
    with pytest.raises(StartupError, match="ensure_kv_transfer_shutdown"):
        engine.rank.get_mem_pool_context()


@pytest.mark.parametrize("name", ["", "e" * 129, "two\nlines"])
def test_an_engine_whose_name_the_node_would_not_take_is_refused_by_name(engine: Engine, name: str) -> None:
    engine.config.kv_transfer_config.engine_id = name
    with pytest.raises(ConfigurationError, match="option=engine_id"):
        BlockyardConnector(engine.config, KVConnectorRole.WORKER, engine.kv_config)


# --- the log ------------------------------------------------------------------------------------------------------
def test_lines_of_the_connector_join_the_log_of_the_engine(engine: Engine) -> None:
    assert any(isinstance(handler, HandOn) for handler in logging.getLogger("blockyard").handlers)


# --- several groups -----------------------------------------------------------------------------------------------
def test_a_hit_needs_all_rows_of_a_full_group_and_the_window_of_the_other(make_engine: Make) -> None:
    engine = make_engine(windows=(0, ROW))
    engine.node.holds = (4, [3])
    engine.request("a", 5 * ROW)
    engine.step()
    ((number, (_, (full, window))),) = engine.node.loads.items()
    assert (full.group, full.first_row, full.count) == (0, 0, 4)
    assert (window.group, window.first_row, window.count) == (1, 3, 1)
    blocks = table(engine, "a", 1)
    assert blocks[: 3 * 4] == [0] * 12, "the engine has no blocks before the window"
    assert [page for page in window.pages if page != NO_PAGE] == [block for block in blocks[12:16] if block]
    engine.node.end_load(number)
    engine.step()
    assert engine.step().tokens == {"a": ROW}
    engine.check_nothing_is_left()


def test_a_window_that_is_not_there_shortens_the_hit(make_engine: Make) -> None:
    engine = make_engine(windows=(0, ROW))
    engine.node.holds = (4, [1])
    engine.request("a", 5 * ROW)
    engine.step()
    ((_, (_, (full, window))),) = engine.node.loads.items()
    assert (full.first_row, full.count) == (0, 2)
    assert (window.first_row, window.count) == (1, 1)


def test_a_failed_load_of_several_groups_is_computed_from_the_start(make_engine: Make) -> None:
    engine = make_engine(windows=(0, ROW))
    engine.node.holds = (2, [1])
    engine.request("a", 3 * ROW)
    engine.step()
    (number,) = engine.node.loads
    engine.node.end_load(number, bad_row=0)
    step = engine.schedule()
    assert step.plan.failed == {"a"}
    assert not step.plan.invalid, "block numbers mean nothing where groups share them"
    engine.finish(step)
    assert engine.step().tokens == {"a": 3 * ROW}
    engine.check_nothing_is_left()


def test_rows_of_all_groups_are_registered_unless_the_window_has_passed_them(make_engine: Make) -> None:
    engine = make_engine(windows=(0, ROW))
    engine.node.holds = (0, 0)
    engine.request("a", 3 * ROW, output=2)
    engine.run()
    rows = {(int(r.group), r.first_row + index) for r in engine.node.registered for index in range(r.count)}
    assert {(0, 0), (0, 1), (0, 2), (1, 2)} <= rows


# --- beside other connectors --------------------------------------------------------------------------------------
def test_beside_a_connector_that_loads_we_only_store(make_engine: Make) -> None:
    children: list[dict[str, Any]] = [
        {
            "kv_connector": name,
            "kv_connector_module_path": "tests.engines.contract.engine_parts",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"blockyard.socket": "/nowhere/s", "blockyard.block_tokens": ROW},
        }
        for name in ("OtherConnector", "ScriptedConnector")
    ]
    engine = make_engine(
        connector={
            "kv_connector": "MultiConnector",
            "kv_connector_module_path": None,
            "kv_connector_extra_config": {"connectors": children},
        },
        several=True,
    )
    engine.node.holds = (2,)
    engine.request("a", 2 * ROW + 5)
    assert engine.step().tokens == {"a": 2 * ROW + 5 - BLOCK}, "the other one brought a block"
    engine.run()
    assert not engine.node.loads
    assert engine.node.released == ["a"], "the lease is given back at once"
    assert sorted((rows.first_row, rows.count) for rows in engine.node.registered) == [(0, 2)]
    assert engine.free == engine.free_at_start
