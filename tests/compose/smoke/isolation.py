"""Namespaces of the kernel around the parts of a run, so that nothing of it is left whatever way it ends.

Processes: when the first of them ends, the kernel ends all others. Mounts: go with the last process. Network: bridges,
firewall rules and published ports exist only inside, so they meet no others and nobody else reaches them.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.compose.smoke.shell import end_group

ROOT: Final = Path(__file__).parents[3]
# dash reaps what loses its parent; as the first process of a namespace Python would keep the dead.
_FIRST_PROCESS: Final = '"$@" & wait $!'
_END_SECONDS: Final = 20.0


def run_inside(module: str, *arguments: str, own_network: bool, seconds: float) -> int:
    """Run a module of this package inside; returns its exit status, 124 when it took too long.

    Args:
        module: its full name.
        arguments: its command line.
        own_network: whether it gets a network of its own; otherwise it has the machine's.
        seconds: how long it may take.
    """
    namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *(["--net"] if own_network else [])]
    process = subprocess.Popen(
        ["unshare", *namespaces, "sh", "-c", _FIRST_PROCESS, "sh", sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return 124
    finally:
        # Ends unshare, with it the first process inside, with it everything inside.
        end_group(process)
