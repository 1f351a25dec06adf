"""Which start of an engine may have a name: two that live do not share one, and none waits for a dead one.

::

    name free ──hello──► connected ──hello of the same start──► replaced: its connection was lost on one side only
                             ├──hello of another start, the process is gone──► replaced: something else holds its socket
                             └──hello of another start, the process lives──► the newcomer is refused

Without this each of two engines would end the session of the other whenever it came back, and both would compute.
Invariants: what is refused changes nothing; a process that cannot be seen from here counts as living.
Threading: system calls that do not wait.
"""

import os
import select
from typing import Final

from blockyard.core.errors import EngineNameTakenError
from blockyard.runtime.rpc.session import RpcSession
from blockyard.wire.connector_channel import Hello
from blockyard_block_manager.engine_mappings import ConnectedEngine

_UNSEEN: Final = 0
"""Number of a process in a space of process numbers that is not ours."""


def check_name(hello: Hello, rpc: RpcSession, earlier: ConnectedEngine) -> None:
    """Refuse a newcomer where the engine that has its name lives and is another one.

    Args:
        hello: what the newcomer says of itself.
        rpc: its connection.
        earlier: the engine of this name that is connected.

    Raises:
        EngineNameTakenError: names the process that has the name.
    """
    pid = earlier.rpc.peer_pid
    if _same_start(hello, rpc, earlier) or (pid != _UNSEEN and _gone(pid)):
        return
    raise EngineNameTakenError(
        "an engine of this name is connected already",
        engine=hello.engine,
        dp_rank=hello.dp_rank,
        pid="not to be seen from the block-manager" if pid == _UNSEEN else pid,
    )


def _gone(pid: int) -> bool:
    """Whether no process has this number, or the one that has it has ended and was not collected yet."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # no right, or no descriptor: nothing is proven
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(0))
    finally:
        os.close(pidfd)


def _same_start(hello: Hello, rpc: RpcSession, earlier: ConnectedEngine) -> bool:
    if hello.life and earlier.session.life:
        return hello.life == earlier.session.life
    return rpc.peer_pid == earlier.rpc.peer_pid != _UNSEEN
