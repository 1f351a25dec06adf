"""Rows of a request in chunks, steps and drafts, as the connector lists them. Numbers are of KVBM's behaviours."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.vllm.block_tables import BlockTable
from blockyard.connectors.vllm.row_stores import RowStores
from blockyard.connectors.vllm.tracked_request import EngineFacts, TrackedRequest
from blockyard.core.kv_groups import KvGroup

BLOCK_TOKENS = 4
FACTS = EngineFacts(
    groups=(KvGroup(engine_block_tokens=BLOCK_TOKENS),),
    block_tokens=BLOCK_TOKENS,
    hash_tokens=BLOCK_TOKENS,
    row_bytes=1,
    ranks=1,
)


@dataclass
class Request:
    """A request with so many tokens that are prompt or accepted output."""

    num_tokens: int
    request_id: str = "r"
    num_preemptions: int = 0
    kv_transfer_params: Mapping[str, Any] | None = None

    @property
    def block_hashes(self) -> list[bytes]:
        return [bytes(32)] * (self.num_tokens // BLOCK_TOKENS)


@dataclass
class Steps:
    """Which rows each step lists."""

    request: Request
    rows: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tracked = TrackedRequest(self.request, opted_out=False, tables=[BlockTable(1)], next_row=[0])
        no_calls: Any = None
        self.stores = RowStores(FACTS, EngineGuards(4), no_calls, self._complete)
        self.number = 0

    def _complete(self, tracked: Any, table: Any, group: int, first: int, stop: int) -> None:
        self.rows.append((first, stop))

    def compute(self, tokens: int) -> list[tuple[int, int]]:
        """A step computes up to this token, drafted ones included; the rows that it lists."""
        self.number += 1
        self.rows = []
        listed = self.stores.list_complete(self.number, self.tracked, tokens)
        assert listed == bool(self.rows)
        return self.rows


def test_40_each_chunk_of_a_prompt_lists_the_rows_that_it_completes_and_none_again() -> None:
    steps = Steps(Request(8))
    assert [steps.compute(tokens) for tokens in (4, 8, 8)] == [[(0, 1)], [(1, 2)], []]


def test_40_a_chunk_that_ends_within_a_row_lists_it_when_the_rest_is_computed() -> None:
    steps = Steps(Request(8))
    assert [steps.compute(tokens) for tokens in (3, 5, 8)] == [[], [(0, 1)], [(1, 2)]]


def test_41_a_decoded_token_counts_when_it_is_computed_not_when_it_is_sampled() -> None:
    steps = Steps(Request(8))
    steps.compute(8)
    for tokens in range(9, 12):
        steps.request.num_tokens = tokens
        assert steps.compute(tokens) == []
    steps.request.num_tokens = 12
    assert steps.compute(11) == []
    assert steps.compute(12) == [(2, 3)]


def test_42_rows_that_end_in_a_draft_are_listed_when_their_tokens_are_accepted() -> None:
    steps = Steps(Request(6))
    assert steps.compute(6) == [(0, 1)]
    assert steps.compute(6 + 5) == [], "no drafted token has a name"
    steps.request.num_tokens = 6 + 3
    assert steps.compute(9) == [(1, 2)]
    assert steps.compute(9 + 5) == []


def test_42_a_draft_of_which_nothing_is_accepted_leaves_no_row_behind() -> None:
    steps = Steps(Request(7))
    assert steps.compute(7 + 5) == [(0, 1)]
    steps.request.num_tokens = 8
    assert steps.compute(8) == [(1, 2)]
