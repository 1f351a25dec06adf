"""Which engine has a name over a real socket: one start at a time, and none waits for a process that is proven gone."""

import errno
import os
import subprocess

import pytest
from tests.unit.block_manager.connector_kit import RUN, Setting, fill, session_of, setting

from blockyard.core.errors import EngineNameTakenError, PeerClosedError, UnknownSessionError
from blockyard.core.vocabulary import Tier
from blockyard.wire import connector_channel as channel

__all__ = ["setting"]


@pytest.fixture
def ended_process() -> int:
    """Number of a process that is no more."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


async def test_a_second_hello_of_an_engine_replaces_the_first(setting: Setting) -> None:
    first, second = await setting.peer(), await setting.peer()
    await first.join()
    await first.ask(fill(setting, RUN))
    await second.join()
    with pytest.raises((PeerClosedError, UnknownSessionError)):
        await first.ask(channel.Reset())
    assert len(setting.world.core.sessions) == 1
    assert setting.world.announced(Tier.G1) == set()


async def test_another_start_of_an_engine_does_not_end_the_session_of_one_that_lives(setting: Setting) -> None:
    first, second = await setting.peer(), await setting.peer()
    await first.join(life="first")
    with pytest.raises(EngineNameTakenError, match=rf"engine=e, dp_rank=0, pid={os.getpid()}\).*blockyard\.name"):
        await second.join(life="second")
    await first.ask(fill(setting, RUN))
    await second.join(life="second", dp_rank=1)
    assert len(setting.world.core.sessions) == 2


async def test_the_same_start_of_an_engine_gets_its_name_back_over_another_connection(setting: Setting) -> None:
    first, second = await setting.peer(), await setting.peer()
    await first.join(life="first")
    await second.join(life="first")
    with pytest.raises((PeerClosedError, UnknownSessionError)):
        await first.ask(channel.Reset())


def comes_from(setting: Setting, pid: int) -> None:
    """The first connection is that of another process."""
    setting.server._rpc.sessions[0].peer_pid = pid


async def test_a_name_is_taken_over_from_a_process_that_is_proven_gone(setting: Setting, ended_process: int) -> None:
    """Whoever else holds its socket open."""
    first, second = await setting.peer(), await setting.peer()
    await first.join(life="first")
    comes_from(setting, ended_process)
    await second.join(life="second")
    assert session_of(setting).life == "second"


async def test_a_question_about_a_name_leaves_no_descriptor_open(setting: Setting) -> None:
    first, second = await setting.peer(), await setting.peer()
    await first.join(life="first")
    with pytest.raises(EngineNameTakenError):
        await second.join(life="second")
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(EngineNameTakenError):
            await second.join(life="second")
    assert os.listdir("/proc/self/fd") == before


async def test_a_process_that_cannot_be_seen_keeps_its_name(setting: Setting) -> None:
    first, second = await setting.peer(), await setting.peer()
    await first.join(life="first")
    comes_from(setting, 0)
    with pytest.raises(EngineNameTakenError, match="not to be seen"):
        await second.join(life="second")


@pytest.mark.parametrize("reason", [errno.EMFILE, errno.EPERM])
async def test_a_process_of_which_nothing_can_be_proven_keeps_its_name(
    setting: Setting, ended_process: int, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def fails(*_: object) -> int:
        raise OSError(reason, os.strerror(reason))

    first, second = await setting.peer(), await setting.peer()
    await first.join(life="first")
    comes_from(setting, ended_process)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pidfd_open", fails)
        with pytest.raises(EngineNameTakenError):
            await second.join(life="second")
    await first.ask(channel.Reset())
    await second.join(life="second")


async def test_engines_that_do_not_name_their_start_are_told_apart_by_their_processes(setting: Setting) -> None:
    first, second = await setting.peer(), await setting.peer()
    await first.join()
    comes_from(setting, os.getppid())
    with pytest.raises(EngineNameTakenError, match=f"pid={os.getppid()}"):
        await second.join()
