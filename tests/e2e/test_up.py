"""``blockyard up`` leaves nothing behind, whatever way it ends."""

import signal

import pytest

from blockyard.testing.launcher import Launcher, RunningCommand

pytestmark = pytest.mark.timeout(120)


def wait_for_line(run: RunningCommand, words: str) -> None:
    assert run.stdout is not None
    seen = []
    for line in run.stdout:
        seen.append(line)
        if words in line:
            return
    pytest.fail(f"{words!r} did not appear in: {''.join(seen)}")


def test_interrupt_ends_everything_and_is_no_failure(launcher: Launcher) -> None:
    with launcher.start("up") as run:
        wait_for_line(run, "/docs")
        assert len(launcher.processes()) >= 3 + 2 * 4
        run.send_signal(signal.SIGINT)
        run.communicate()
    assert run.returncode == 0
    assert launcher.processes() == []
    assert list(launcher.temporary.iterdir()) == []


def test_interrupt_while_starting_ends_everything(launcher: Launcher) -> None:
    with launcher.start("up") as run:
        wait_for_line(run, "starting")
        run.send_signal(signal.SIGINT)
        run.communicate()
    assert run.returncode == 0
    assert launcher.processes() == []


def test_killed_supervisor_takes_everything_with_it(launcher: Launcher) -> None:
    with launcher.start("up") as run:
        wait_for_line(run, "/docs")
        run.kill()
        run.communicate()
    launcher.assert_nothing_left()
