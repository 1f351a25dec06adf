"""Orders about slots through a client: every question is answered, and nothing of one connection is told to another."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from blockyard.connectors.slot_calls import StagedLoad, StoreGrant
from blockyard.connectors.vllm.rows import Rows
from blockyard.connectors.vllm.slot_orders import LoadStaged, SlotNews, SlotsGranted, ThreadedSlots
from blockyard.core.engine_names import EngineNames
from blockyard.core.errors import RequestError, UnavailableError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import BlockId, Generation, GroupId, ItemStatus, LoadId, Tier

NAMES = EngineNames(ModelIdentity(model="m").digest())
ROWS = Rows(GroupId(1), 1, [b"a" * 32, b"b" * 32], np.array([3]), np.array([1], np.uint64))
GRANT = StoreGrant(4, (BlockId(2),), (Generation(6),))
STAGED = StagedLoad(LoadId(9), (ItemStatus.OK,), (Tier.G2,), (BlockId(2),), (Generation(6),))


class ScriptedClient:
    """Answers, or fails."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.error: Exception | None = None

    def _called(self, *call: Any) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error

    async def reserve_store(self, count: int) -> StoreGrant:
        self._called("reserve", count)
        return GRANT

    async def commit_store(self, grant: int, slots: Any, run: Any, *, group: Any, shards: int) -> None:
        self._called("commit", grant, slots, run, group, shards)

    async def abort_store(self, grant: int, slots: Any) -> None:
        self._called("abort", grant, slots)

    async def stage_load(self, request: Any, run: Any, *, group: Any, ttl_seconds: float) -> StagedLoad:
        self._called("stage", request, run, group, ttl_seconds)
        return STAGED

    async def close_load(self, load: LoadId) -> None:
        self._called("close", load)


class Scene:
    """Orders that are carried out at once."""

    def __init__(self) -> None:
        self.client: Any = ScriptedClient()
        self.news: list[SlotNews] = []
        self.life = 1
        self.raised: list[BaseException] = []
        self.orders = ThreadedSlots(self._post, NAMES, self.news.append, lambda: self.life)

    def _post(self, call: Callable[[Any], Awaitable[None]]) -> None:
        async def carry_out() -> None:
            try:
                await call(self.client)
            except (UnavailableError, RequestError, ValueError) as error:
                self.raised.append(error)

        asyncio.run(carry_out())


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_slots_come_with_the_connection_that_they_are_good_for(scene: Scene) -> None:
    scene.orders.reserve(8)
    assert scene.news == [SlotsGranted(1, GRANT)]


@pytest.mark.parametrize("error", [UnavailableError("away"), RequestError("refused"), ValueError("a fault")])
def test_questions_that_fail_are_answered_too(scene: Scene, error: Exception) -> None:
    scene.client.error = error
    scene.orders.reserve(8)
    scene.orders.stage(7, "r", [ROWS, ROWS], 1.0)
    assert scene.news == [SlotsGranted(1, StoreGrant(0, (), ())), LoadStaged(7, 1, (None, None))]


def test_a_load_whose_rows_cannot_be_named_is_answered_too(scene: Scene) -> None:
    nameless = Rows(GroupId(1), 1, [], np.array([3]), np.array([1], np.uint64))
    scene.orders.stage(7, "r", [nameless], 1.0)
    assert scene.news == [LoadStaged(7, 1, (None,))]


def test_rows_are_named_when_they_are_committed_and_staged(scene: Scene) -> None:
    run = NAMES.run(ROWS.hashes, 1)
    scene.orders.commit(1, 4, [BlockId(2)], ROWS, 3)
    scene.orders.abort(1, 4, [BlockId(5)])
    scene.orders.stage(7, "r", [ROWS], 1.0)
    scene.orders.close_loads(1, [LoadId(9), LoadId(10)])
    assert scene.client.calls == [
        ("commit", 4, [2], run, 1, 3),
        ("abort", 4, [5]),
        ("stage", "r", run, 1, 1.0),
        ("close", 9),
        ("close", 10),
    ]
    assert scene.news == [LoadStaged(7, 1, (STAGED,))]


def test_what_another_connection_granted_is_not_told_to_this_one(scene: Scene) -> None:
    scene.life = 2
    scene.orders.commit(1, 4, [BlockId(2)], ROWS, 3)
    scene.orders.abort(1, 4, [BlockId(5)])
    scene.orders.close_loads(1, [LoadId(9)])
    assert scene.client.calls == []


def test_a_grant_that_has_ended_is_nothing_to_complain_about(scene: Scene) -> None:
    scene.client.error = RequestError("the grant has ended")
    scene.orders.commit(1, 4, [BlockId(2)], ROWS, 3)
    scene.orders.abort(1, 4, [BlockId(5)])
    assert scene.raised == []


def test_rows_are_cut_with_the_hash_before_them() -> None:
    pages = np.arange(6)
    first = Rows(GroupId(0), 0, [b"0", b"1", b"2"], pages, np.zeros(6, np.uint64))
    assert [first.part(start, stop).hashes for start, stop in ((0, 2), (1, 3))] == [[b"0", b"1"], [b"0", b"1", b"2"]]
    later = Rows(GroupId(0), 5, [b"4", b"5", b"6", b"7"], pages, np.zeros(6, np.uint64))
    part = later.part(1, 3)
    assert (part.first_row, part.count, part.hashes, part.pages.tolist()) == (6, 2, [b"5", b"6", b"7"], [2, 3, 4, 5])
