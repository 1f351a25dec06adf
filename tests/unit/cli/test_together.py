"""Waiting for several things leaves none running behind a failure."""

import asyncio

import pytest

from blockyard.cli.together import alongside, together
from blockyard.core.errors import UnavailableError


async def fail() -> None:
    raise UnavailableError("no")


async def test_a_failure_cancels_the_others_and_is_raised_itself() -> None:
    ended = asyncio.Event()

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(UnavailableError):
        await together(wait_for_ever(), fail())
    assert ended.is_set()


async def test_the_background_ends_with_the_work() -> None:
    ended = asyncio.Event()

    async def background() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def work() -> None:
        await asyncio.sleep(0)

    await alongside(background(), work())
    assert ended.is_set()


async def test_a_failing_background_ends_the_work() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(UnavailableError):
        await alongside(fail(), work())
    assert ended.is_set()
