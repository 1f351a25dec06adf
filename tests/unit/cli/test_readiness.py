"""Waiting ends when nothing is missing, or with what is; on the way the person in front hears of it."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from blockyard.cli import readiness
from blockyard.cli.readiness import Question, missing_at, wait_until_ready
from blockyard.core.errors import ServerStartError


def after(*reasons: str) -> Question:
    """Misses these things one after the other, then nothing."""
    left = list(reasons)

    async def ask() -> str:
        return left.pop(0) if left else ""

    return ask


async def never() -> str:
    return "disk: full"


async def test_every_service_is_asked_until_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_TELL_SECONDS", -1.0)
    said: list[str] = []
    await wait_until_ready({"a": after("x", "y"), "b": after()}, said.append)
    assert said == ["  still waiting for a: x", "  still waiting for a: y"]


async def test_the_last_answer_is_part_of_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_READY_SECONDS", 0.1)
    with pytest.raises(ServerStartError, match=r"disk: full \(server=b\)"):
        await wait_until_ready({"a": after(), "b": never}, lambda _: None)


async def test_nothing_is_missing_when_the_time_is_over_right_after_the_last_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A poll that is longer than the limit: whoever still sleeps after the last answer runs into it."""
    monkeypatch.setattr(readiness, "_READY_SECONDS", 0.1)
    monkeypatch.setattr(readiness, "_POLL_SECONDS", 30.0)
    async with asyncio.timeout(10):
        await wait_until_ready({"a": after()}, lambda _: None)


def answering(status: int, **body: object) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(status, **body)  # type: ignore[arg-type]


CHECKS = {"checks": [{"name": "bus", "detail": "no answer", "ok": False}, {"name": "disk", "detail": "", "ok": True}]}


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (answering(200), ""),
        (answering(503, json=CHECKS), "bus: no answer"),
        (answering(503, json={"checks": []}), "it is starting"),
        (answering(503, json={}), "{}"),
        (answering(404, text="Not Found"), "Not Found"),
    ],
)
async def test_what_a_service_says_is_missing(answer: Callable[[httpx.Request], httpx.Response], missing: str) -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        assert await missing_at(http, "http://s") == missing


async def test_no_answer_is_missing_too() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as http:
        assert await missing_at(http, "http://s") == "/readyz: ConnectError"
