"""The shared index behind a remote tier that hangs: one question waits, the others are unknown at once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest

from blockyard.core.block_name import BlockName, names_of
from blockyard.core.errors import DeadlineExceededError
from blockyard.core.events import BlockScope
from blockyard.core.vocabulary import Availability, GroupId, IdentityDigest
from blockyard.testing.blocks import chain
from blockyard.testing.clock import FakeClock
from blockyard.testing.rpc_peer import until
from blockyard.wire.trace_parent import TraceParent
from blockyard.wire.worker_channel import Find, Found
from blockyard_block_manager.remote_index import RemoteIndex

NAMES: tuple[BlockName, ...] = names_of(chain("a", 2))
SCOPE = BlockScope(IdentityDigest(bytes(32)), block_tokens=16)
MISS, UNKNOWN = [Availability.MISS] * 2, [Availability.UNKNOWN] * 2


@dataclass
class Link:
    """A link to a remote tier that hangs while ``goes_on`` is cleared."""

    answering: bool = True
    asked: list[float] = field(default_factory=list)
    requests: list[Find] = field(default_factory=list)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def find(self, request: Find, timeout_seconds: float, trace: TraceParent) -> Found:
        self.asked.append(timeout_seconds)
        self.requests.append(request)
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.goes_on.wait()
        except TimeoutError:
            raise DeadlineExceededError("no reply in time") from None
        return Found(availability=bytes(MISS), locators=bytes(64))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def link() -> Link:
    return Link()


@pytest.fixture
async def index(clock: FakeClock, link: Link, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RemoteIndex]:
    monkeypatch.setattr("blockyard_block_manager.remote_index._PATIENCE_SECONDS", 0.02)
    index = RemoteIndex(clock)
    index.connect(link)
    yield index
    await index.close()


async def ask(index: RemoteIndex, seconds: float = 0.02) -> list[Availability]:
    return [availability for availability, _ in await index.ask(SCOPE, NAMES, seconds)]


async def test_an_index_that_answers_is_asked_each_time(index: RemoteIndex, link: Link) -> None:
    link.goes_on.set()
    assert [await ask(index) for _ in range(3)] == [MISS] * 3
    assert len(link.asked) == 3


async def test_one_question_meets_the_silence_and_the_others_do_not(index: RemoteIndex, link: Link) -> None:
    assert await ask(index) == UNKNOWN
    await until(lambda: not index.usable())
    assert [await ask(index) for _ in range(50)] == [UNKNOWN] * 50
    assert len(link.asked) == 1


async def test_after_a_pause_one_question_tries_and_an_answer_brings_all_back(
    index: RemoteIndex, link: Link, clock: FakeClock
) -> None:
    assert await ask(index) == UNKNOWN
    await until(lambda: not index.usable())
    clock.advance(1)
    assert index.usable()
    answers = await asyncio.gather(*(ask(index) for _ in range(20)))
    assert answers == [UNKNOWN] * 20
    assert len(link.asked) == 2, "one probe at a time"
    await until(lambda: not index.usable())
    link.goes_on.set()
    clock.advance(10)
    assert await ask(index) == MISS
    assert await ask(index) == MISS


async def test_a_caller_in_a_hurry_does_not_make_the_remote_tier_look_dead(index: RemoteIndex, link: Link) -> None:
    assert await ask(index, 0.001) == UNKNOWN
    link.goes_on.set()
    assert await ask(index) == MISS
    assert link.asked == [0.02, 0.02]


async def test_a_worker_that_leaves_its_jobs_unanswered_is_not_asked(index: RemoteIndex, link: Link) -> None:
    link.answering = False
    assert await ask(index) == UNKNOWN
    assert link.asked == []


async def test_the_question_says_which_group_the_rows_are_of(index: RemoteIndex, link: Link) -> None:
    link.goes_on.set()
    for group in (GroupId(0), GroupId(1)):
        await index.ask(replace(SCOPE, group=group), NAMES, 1.0)
    keys = NAMES[0].key + NAMES[1].key
    assert [(request.group, request.keys) for request in link.requests] == [(0, keys), (1, keys)]
