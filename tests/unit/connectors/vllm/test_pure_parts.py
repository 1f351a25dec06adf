"""Parts of the vLLM connector that run without it: settings, names, tables, hits, reports."""

from pathlib import Path

import numpy as np
import pytest

from blockyard.connectors.engine_guards import EngineGuards, Numbers
from blockyard.connectors.vllm.block_tables import BlockTable
from blockyard.connectors.vllm.connector_counts import ConnectorCounts
from blockyard.connectors.vllm.prefix_hit import prefix_hit
from blockyard.connectors.vllm.rows import Rows
from blockyard.connectors.vllm.settings import connector_settings, opted_out
from blockyard.connectors.vllm.step_plan import NOTHING, StepPlan, StepReport
from blockyard.core.cost import CostModel
from blockyard.core.errors import ConfigurationError
from blockyard.core.kv_groups import NO_PAGE, GroupKind, KvGroup
from blockyard.core.miss_reason import MissReason
from blockyard.core.vocabulary import Availability, EngineBlockId, Executor, GroupId

HIT, MISS, UNKNOWN = Availability.G2, Availability.MISS, Availability.UNKNOWN
FULL = KvGroup(engine_block_tokens=16)
WINDOW = KvGroup(group=GroupId(1), kind=GroupKind.SLIDING_WINDOW, engine_block_tokens=16, window_tokens=64)


# --- settings -----------------------------------------------------------------------------------------------------
def test_settings_are_read_and_those_of_others_left_alone() -> None:
    settings = connector_settings(
        {"blockyard.socket": "/run/node/engines.sock", "blockyard.executor": "nixl", "other.key": 3, "shared": 1}
    )
    assert settings.socket == Path("/run/node/engines.sock")
    assert settings.executor is Executor.NIXL
    assert settings.block_tokens == 512


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "blockyard.socket"),
        ({"blockyard.socket": "relative"}, "absolute"),
        ({"blockyard.socket": "/s", "blockyard.holdms": 3}, "blockyard.hold_ms"),
        ({"blockyard.socket": "/s", "blockyard.hold_ms": -1}, "within limits"),
        ({"blockyard.socket": "/s", "blockyard.hold_ms": True}, "within limits"),
        ({"blockyard.socket": "/s", "blockyard.enabled": "no"}, "true or false"),
        ({"blockyard.socket": "/s", "blockyard.executor": "magic"}, "mapped, nixl, engine"),
        ({"blockyard.socket": "/s", "blockyard.model": ""}, "printable"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        connector_settings(given)


def test_a_connector_that_is_switched_off_needs_no_socket() -> None:
    assert not connector_settings({"blockyard.enabled": False}).enabled


def test_a_request_stays_out_by_its_own_word_only() -> None:
    assert opted_out({"blockyard": "off"})
    assert opted_out({"blockyard": False})
    assert opted_out({"blockyard": "Off"})
    assert not opted_out("off")
    assert not opted_out(["blockyard"])
    assert not opted_out({"blockyard": True})
    assert not opted_out({"blockyard": "on"})
    assert not opted_out({"do_remote_decode": True})
    assert not opted_out(None)


# --- tables -------------------------------------------------------------------------------------------------------
def blocks(*numbers: int) -> Numbers:
    return np.array(numbers, np.int64)


def table_of(guards: EngineGuards, *numbers: int) -> BlockTable:
    table = BlockTable(2)
    table.append(blocks(*numbers), guards.values(blocks(*numbers)))
    return table


def filled(table: BlockTable, first_row: int, stop_row: int) -> Rows | None:
    """Rows of the table by made-up names."""
    pages = table.filled(first_row, stop_row)
    if pages is None:
        return None
    hashes = [bytes([row]) * 32 for row in range(max(0, first_row - 1), first_row + pages.rows)]
    return Rows(GroupId(0), pages.first_row, hashes, pages.pages, pages.guards)


def test_pages_that_the_engine_holds_or_has_no_use_for_are_left_out() -> None:
    with EngineGuards(32) as guards:
        guards.raise_guards([EngineBlockId(9)])
        table = table_of(guards, 5, 6, 7, 8, 0, 9, 10, 11)
        wanted = table.wanted(0, 4, held_blocks=3)
        assert wanted is not None
        assert (wanted.first_row, wanted.rows) == (1, 3)
        assert wanted.pages.tolist() == [NO_PAGE, 8, NO_PAGE, 9, 10, 11]
        assert wanted.guards.tolist() == [0, 0, 0, 1, 0, 0]
        assert table.wanted(0, 1, held_blocks=2) is None


@pytest.mark.parametrize("first_row", [0, 1])
def test_rows_with_a_block_that_was_reused_or_a_filler_are_not_intact(first_row: int) -> None:
    with EngineGuards(32) as guards:
        rows = filled(table_of(guards, 1, 2, 3, 4, 5, 6, 0, 7, 8, 9), first_row, 5)
        assert rows is not None
        guards.raise_guards([EngineBlockId(4)])
        found = [(part.first_row, part.count, part.pages.tolist()) for part in rows.intact(guards)]
        assert found == [(0, 1, [1, 2]), (2, 1, [5, 6]), (4, 1, [8, 9])][first_row:]
        assert [part.hashes[-1] for part in rows.intact(guards)] == [bytes([row]) * 32 for row in (0, 2, 4)][first_row:]


def test_rows_that_nobody_touched_are_intact_as_they_are() -> None:
    with EngineGuards(32) as guards:
        rows = filled(table_of(guards, 1, 2, 3, 4), 0, 2)
        assert rows is not None
        assert rows.intact(guards) == [rows]


def test_a_row_that_is_not_filled_with_blocks_yet_has_no_pages_to_name() -> None:
    with EngineGuards(32) as guards:
        table = table_of(guards, 1, 2, 3)
        pages = table.filled(0, 2)
        assert pages is not None
        assert pages.rows == 1
        assert table.filled(1, 9) is None


def test_what_a_table_handed_out_stays_as_it_was_when_the_table_grows() -> None:
    with EngineGuards(2_000) as guards:
        table = BlockTable(2)
        whole = blocks(*range(1, 1_201))
        for start in range(0, 1_200, 300):
            part = whole[start : start + 300]
            table.append(part, guards.raise_guards(part))
            if start == 0:
                early = table.filled(0, 150)
        assert early is not None
        assert early.pages.tolist() == list(range(1, 301))
        late = table.filled(0, 600)
        assert late is not None
        assert (late.pages.tolist(), set(late.guards.tolist())) == (list(range(1, 1_201)), {1})


# --- hits ---------------------------------------------------------------------------------------------------------
def test_a_hit_ends_at_a_whole_row_and_counts_from_the_local_tokens() -> None:
    hit = prefix_hit([FULL], ((HIT, HIT, HIT, MISS),), 80, 300, 64, 1024, CostModel())
    assert (hit.first_row, hit.stop_row, hit.tokens) == (1, 3, 3 * 64 - 80)
    assert hit.reason is MissReason.NOT_STORED
    assert hit.found_tokens == {"g2": 3 * 64 - 80}


def test_a_hole_before_the_local_tokens_does_not_matter() -> None:
    assert prefix_hit([FULL], ((MISS, HIT),), 64, 200, 64, 1024, CostModel()).tokens == 64


@pytest.mark.parametrize(
    ("found", "local", "tokens", "reason"),
    [
        ((), 0, 63, MissReason.SHORTER_THAN_A_BLOCK),
        ((HIT,), 64, 64, MissReason.FULL_HIT),
        ((HIT, HIT), 0, 128, MissReason.FULL_HIT),
        ((HIT, UNKNOWN), 0, 128, MissReason.UNKNOWN_SOURCE),
        ((MISS, HIT), 0, 128, MissReason.NOT_STORED),
    ],
)
def test_every_hit_says_why_it_ends(
    found: tuple[Availability, ...], local: int, tokens: int, reason: MissReason
) -> None:
    assert prefix_hit([FULL], (found,), local, tokens, 64, 1024, CostModel()).reason is reason


def test_groups_agree_on_where_a_hit_ends() -> None:
    found = ((HIT, HIT, HIT), (MISS, HIT, MISS))
    for cost in (CostModel(), None):
        hit = prefix_hit([FULL, WINDOW], found, 0, 300, 64, 1024, cost)
        assert hit.stop_row == 2


# --- reports and counts -------------------------------------------------------------------------------------------
def test_reports_of_ranks_add_up_per_step() -> None:
    a, b = StepReport(), StepReport()
    a.completed(1, 0.5)
    b.completed(1, 0.7)
    b.completed(2, 0.1)
    joined = a.joined(b)
    assert joined.ranks == {1: 2, 2: 1}
    assert joined.seconds == {1: 0.7, 2: 0.1}
    assert a.ranks == {1: 1}


def test_only_a_plan_with_something_to_do_is_not_empty() -> None:
    assert NOTHING.is_empty
    assert not StepPlan(received=frozenset({"a"})).is_empty


def test_counts_are_handed_out_once() -> None:
    counts = ConnectorCounts()
    counts.loaded(2, 100, 0)
    counts.looked_up(None)
    counts.looked_up(((HIT, MISS),))
    counts.looked_up(((MISS, MISS),))
    counts.decided(MissReason.TOO_DEAR)
    assert counts.take() == {
        "blocks_loaded": 2,
        "bytes_loaded": 100,
        "lookups_unknown": 1,
        "lookups_hit": 1,
        "lookups_miss": 1,
        "decisions:too_dear": 1,
    }
    assert counts.take() == {}
