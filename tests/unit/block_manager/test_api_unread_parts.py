"""Parts of a request that nobody reads are refused on every page, and nothing is cleared by them."""

from collections.abc import AsyncIterator

import httpx
import pytest
from tests.unit.block_manager.api_kit import IDENTITY, Api, api

from blockyard.core.vocabulary import Tier

__all__ = ["api"]  # a fixture
DIGEST = "ff" * 16


async def pages(api: Api) -> AsyncIterator[tuple[str, str, bool]]:
    """Method, path, and whether a body is read, of every page that the document of the API names."""
    document = (await api.http.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path.format(tier="g2", request="r"), "requestBody" in operation


def fields(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 422, answer.text
    return [error["field"] for error in answer.json()["errors"]]


async def test_every_page_refuses_parameters_that_it_does_not_know(api: Api) -> None:
    asked = 0
    async for method, path, _ in pages(api):
        answer = await api.http.request(method, path, params={"tennant": DIGEST})
        assert fields(answer) == ["query.tennant"], (method, path)
        asked += 1
    assert asked >= 9
    assert len(api.world.held(Tier.G2)) == len(api.world.held(Tier.G3)) == 4


async def test_every_page_that_reads_no_body_refuses_one(api: Api) -> None:
    asked = 0
    async for method, path, reads_body in pages(api):
        if not reads_body:
            answer = await api.http.request(method, path, json={"tenant": DIGEST})
            assert fields(answer) == ["body"], (method, path)
            plain = await api.http.request(method, path, content=b"tenant=ff")
            assert fields(plain) == ["body"], (method, path)
            asked += 1
    assert asked >= 6
    assert len(api.world.held(Tier.G2)) == len(api.world.held(Tier.G3)) == 4


@pytest.mark.parametrize(
    "query", [f"Tenant={DIGEST}", f"identity={IDENTITY}&identity={IDENTITY}", f"tenant={DIGEST}&tenant="]
)
async def test_a_scope_written_otherwise_clears_nothing(api: Api, query: str) -> None:
    for path in ("/v1/tiers/g2:clear", "/v1/tiers:clear"):
        [field] = fields(await api.http.post(f"{path}?{query}"))
        assert field == f"query.{query.partition('=')[0]}"
    assert len(api.world.held(Tier.G2)) == 4


async def test_the_refusal_names_the_parameters_that_there_are(api: Api) -> None:
    body = await api.problem(api.http.post("/v1/tiers:clear?tennant=1"), 422, "invalid-request")
    assert body["errors"] == [
        {"field": "query.tennant", "reason": "parameters of the query are: identity, tenant, wait_seconds"}
    ]
