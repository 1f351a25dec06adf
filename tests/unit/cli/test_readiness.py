"""Waiting ends when nothing is missing, or with what is; on the way the person in front hears of it."""

import asyncio
from collections.abc import Callable

import httpx
import pytest
from pydantic import SecretStr

from blockyard.cli import readiness
from blockyard.cli.readiness import REFUSALS, Question, missing_at, wait_until_ready
from blockyard.core.errors import AccessDeniedError, ServerStartError
from blockyard.runtime.bus_complaint import bus_complaint
from blockyard.runtime.settings import G4Section, RedisSection
from blockyard_remote_tier.complaints import index_complaint, store_complaint


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


async def test_the_end_of_the_log_is_part_of_the_error_and_where_the_log_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a run is gone when the error is read."""
    monkeypatch.setattr(readiness, "_READY_SECONDS", 0.1)
    with pytest.raises(ServerStartError) as caught:
        await wait_until_ready({"a": after(), "b": never}, lambda _: None, lambda name: f"log of {name}")
    assert "not ready in time: disk: full; end of its log:\nlog of b" in str(caught.value)
    assert "--keep" in str(caught.value)


def refusing(complaint: str) -> Question:
    async def ask() -> str:
        return f"nats: {complaint}"

    return ask


STORE = G4Section(access_key=SecretStr("name"), secret_key=SecretStr("secret"))


@pytest.mark.parametrize(
    "complaint",
    [
        bus_complaint(Exception("nats: 'Authorization Violation'"), "nats://u:p@h:1"),
        bus_complaint(Exception("nats: 'Authorization Violation'"), "nats://h:1"),
        index_complaint(AccessDeniedError("x"), RedisSection(url=SecretStr("redis://:p@h:1/0"))),
        index_complaint(AccessDeniedError("x"), RedisSection(url=SecretStr("redis://h:1/0"))),
        store_complaint(AccessDeniedError(reason="InvalidAccessKeyId"), STORE),
        store_complaint(AccessDeniedError(reason="SignatureDoesNotMatch"), STORE),
        store_complaint(AccessDeniedError(), G4Section()),
    ],
)
async def test_a_refused_account_is_not_waited_for_to_the_end(monkeypatch: pytest.MonkeyPatch, complaint: str) -> None:
    monkeypatch.setattr(readiness, "_REFUSED_SECONDS", 0.1)
    async with asyncio.timeout(20):
        with pytest.raises(ServerStartError, match="it is refused: nats: "):
            await wait_until_ready({"a": never, "b": refusing(complaint)}, lambda _: None)


async def test_a_server_that_is_away_or_refuses_only_at_first_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_REFUSED_SECONDS", 1e-9)
    monkeypatch.setattr(readiness, "_FORGOTTEN_SECONDS", 0.0)
    away = bus_complaint(ConnectionRefusedError(111, "Connection refused"), "nats://h:1")
    await wait_until_ready({"a": after(away, away, REFUSALS[0], away, REFUSALS[0])}, lambda _: None)


async def test_a_refusal_that_looks_like_a_lost_connection_in_between_stays_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "_REFUSED_SECONDS", 1e-9)
    with pytest.raises(ServerStartError, match="it is refused"):
        await wait_until_ready({"a": after(REFUSALS[0], "connection reset", REFUSALS[0])}, lambda _: None)


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
