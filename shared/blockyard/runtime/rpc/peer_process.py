"""The process at the other side of a unix socket: ended where it must not go on, and never mistaken for another one.

A number is given to another process once its own has ended. The end of a process ends its sockets too, so what is
opened by number while the socket is still connected is the peer.
Threading: any thread; system calls that do not wait.
"""

import errno
import os
import select
import signal
import socket
from typing import Final

from blockyard.core.errors import UnavailableError, UnsupportedOperationError
from blockyard.runtime.rpc.unix_socket import peer_credentials

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def end_peer(peer: socket.socket) -> None:
    """Kill the process that listens, or has connected, at the other side. It may still be there when this returns.

    Raises:
        UnavailableError: it is gone, or this process has no descriptor left for now.
        UnsupportedOperationError: it cannot be seen from here, is no process of this user, or is this one.
    """
    pid, user = peer_credentials(peer)
    if pid < 1:
        raise UnsupportedOperationError("it cannot be seen from here: share its process space")
    if user != os.geteuid() or pid == os.getpid():
        raise UnsupportedOperationError("it is no other process of this user", pid=pid, user=user)
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError as error:
        raise UnavailableError("the process is gone", pid=pid) from error
    except OSError as error:
        kind = UnavailableError if error.errno in _EXHAUSTED else UnsupportedOperationError
        raise kind("no pidfd can be opened", pid=pid, reason=error.strerror or str(error)) from error
    try:
        if _hung_up(peer):
            raise UnavailableError("the process is gone", pid=pid)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError as error:
        raise UnavailableError("the process is gone", pid=pid) from error
    except OSError as error:
        raise UnsupportedOperationError("no right to end it", pid=pid, reason=error.strerror or str(error)) from error
    finally:
        os.close(pidfd)


def _hung_up(peer: socket.socket) -> bool:
    poll = select.poll()
    poll.register(peer, select.POLLRDHUP)
    return bool(poll.poll(0))
