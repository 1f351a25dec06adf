"""Namespaces of the kernel around the parts of a run, so that nothing of it is left whatever way it ends.

Processes: when the first of them ends, the kernel ends all others. Mounts: go with the last process. Network: bridges,
firewall rules and published ports exist only inside, so they meet no others and nobody else reaches them.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.compose.smoke.shell import SmokeError, end_group

ROOT: Final = Path(__file__).parents[3]
# dash reaps what loses its parent; as the first process of a namespace Python would keep the dead.
_FIRST_PROCESS: Final = '"$@" & wait $!'
# Also when this process is killed: then nobody is left to end it.
_END_WITH_PARENT: Final = ("setpriv", "--pdeathsig", "KILL")


_END_SECONDS: Final = 20.0


def run_inside(module: str, *arguments: str, own_network: bool, seconds: float, held: int) -> int:
    """Run a module of this package inside; returns its exit status.

    Args:
        module: its full name.
        arguments: its command line.
        own_network: whether it gets a network of its own; otherwise it has the machine's.
        seconds: how long it may take.
        held: descriptor that stays open inside until the last process has ended.

    Raises:
        SmokeError: it took longer.
    """
    namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *(["--net"] if own_network else [])]
    first = ["sh", "-c", _FIRST_PROCESS, "sh", sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(
        [*_END_WITH_PARENT, "unshare", *namespaces, *first], cwd=ROOT, start_new_session=True, pass_fds=(held,)
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise SmokeError(f"{module} was not done after {seconds:.0f} s") from None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End everything inside, and return when it has ended: only then nobody writes to the folder of the run any more.

    The kernel lets the first process inside go after all others, and its parent, unshare, after it.
    """
    if process.poll() is not None:
        return
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        end_group(process)
