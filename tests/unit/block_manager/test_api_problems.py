"""Errors of the API that no decision makes: all say what to do."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from blockyard_block_manager.api import problems
from blockyard_block_manager.api.limits import MAX_BODY_BYTES, BodyLimit
from blockyard_block_manager.api.schemas import LookupRequest

BODY = {"identity": "0" * 64, "digests": []}


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    problems.install(app)

    @app.post("/lookup")
    async def lookup(request: LookupRequest) -> int:
        return len(request.digests)

    transport = httpx.ASGITransport(app=BodyLimit(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "content", "kind", "status", "remedy"),
    [
        ("GET", "/nothing", b"", "", 404, "/openapi.json"),
        ("GET", "/lookup", b"", "", 405, "Allow"),
        ("POST", "/lookup", b"{}", "application/json", 422, "named fields"),
        ("POST", "/lookup", b"{", "application/json", 422, "named fields"),
        ("POST", "/lookup", b"[" * 100_000, "application/json", 400, "JSON"),
        ("POST", "/lookup", b"\xff{", "application/json", 400, "JSON"),
        ("POST", "/lookup", b" " * (MAX_BODY_BYTES + 1), "application/json", 413, "smaller"),
        ("POST", "/lookup", json.dumps(BODY).encode(), "text/plain", 415, "application/json"),
        ("POST", "/lookup", json.dumps(BODY).encode(), "multipart/form-data; boundary=x", 415, "application/json"),
        ("POST", "/lookup", json.dumps(BODY).encode(), "", 415, "application/json"),
    ],
)
async def test_every_refusal_says_what_to_do(
    http: httpx.AsyncClient, method: str, path: str, content: bytes, kind: str, status: int, remedy: str
) -> None:
    headers = {"content-type": kind} if kind else {}
    answer = await http.request(method, path, content=content, headers=headers)
    assert (answer.status_code, answer.headers["content-type"]) == (status, problems.PROBLEM_JSON)
    assert remedy in answer.json()["remedy"]
