"""Clears over the API."""

import asyncio

import pytest
from tests.unit.block_manager.api_kit import IDENTITY, Api, api
from tests.unit.block_manager.world import OW

from blockyard.core.vocabulary import Tier

__all__ = ["api"]  # a fixture


async def test_a_clear_answers_when_it_is_done(api: Api) -> None:
    asked = asyncio.create_task(api.http.post("/v1/tiers/g2:clear"))
    while not api.world.core.desk.open_orders():
        await asyncio.sleep(0)
    api.world.settle()
    response = await asked
    assert response.status_code == 200
    body = response.json()
    assert (body["tier"], body["done"], body["removed"], body["headers_freed"]) == ("g2", True, 4, 4)


async def test_a_clear_that_takes_longer_says_so(api: Api) -> None:
    response = await api.http.post("/v1/tiers/g3:clear", params={"wait_seconds": 0})
    assert (response.status_code, response.json()["done"], response.json()["removed"]) == (202, False, 4)


async def test_all_tiers_are_cleared_at_once_and_reported_one_by_one(api: Api) -> None:
    asked = asyncio.create_task(api.http.post("/v1/tiers:clear"))
    while not api.world.core.desk.open_orders():
        await asyncio.sleep(0)
    assert api.world.held(Tier.G2) == api.world.held(Tier.G3) == set()
    api.world.settle()
    body = (await asked).json()
    assert body["done"]
    parts = [(part["tier"], part["done"], part["removed"]) for part in body["tiers"]]
    assert parts == [("g2", True, 4), ("g3", True, 4)]


async def test_a_clear_of_all_tiers_that_takes_longer_says_so(api: Api) -> None:
    response = await api.http.post("/v1/tiers:clear", params={"wait_seconds": 0})
    assert response.status_code == 202
    assert [part["done"] for part in response.json()["tiers"]] == [False, False]


async def test_a_clear_can_be_narrowed_to_a_model_or_a_tenant(api: Api) -> None:
    other = {"wait_seconds": "0", "identity": "ab" * 32}
    assert (await api.http.post("/v1/tiers/g2:clear", params=other)).json()["removed"] == 0
    tenant = {"wait_seconds": "0", "identity": IDENTITY, "tenant": "cd" * 16}
    assert (await api.http.post("/v1/tiers/g2:clear", params=tenant)).json()["removed"] == 0
    mine = {"wait_seconds": "0", "identity": IDENTITY, "tenant": "00" * 16}
    assert (await api.http.post("/v1/tiers/g2:clear", params=mine)).json()["removed"] == 4
    await api.problem(api.http.post("/v1/tiers/g2:clear", params={"tenant": "x"}), 422, "invalid-request")


@pytest.mark.parametrize("tier", ["g1", "g4"])
async def test_tiers_of_others_cannot_be_cleared(api: Api, tier: str) -> None:
    body = await api.problem(api.http.post(f"/v1/tiers/{tier}:clear"), 409, "unsupported-operation")
    assert "reset" in str(body["detail"]) or "purge" in str(body["detail"])


async def test_a_clear_without_the_worker_asks_to_come_back(api: Api) -> None:
    api.world.lose(OW)
    await api.problem(api.http.post("/v1/tiers/g2:clear"), 503, "not-ready")
    assert (await api.http.post("/v1/tiers/g2:clear")).headers["retry-after"]
