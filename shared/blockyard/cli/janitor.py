"""Program that removes what a run leaves on disk when the run itself was killed and could not.

Run as a script by path, isolated, standard library only. Input, each closed by a zero byte, since a path may hold any
other: ``remove PATH`` adds a path to remove, ``stray PATH`` one that nobody wants to keep, ``keep`` means remove strays
only; one that is cut short does not count. End of input means that the run has ended, by whatever way. The writing end
of the pipe is closed on exec, so only the run itself holds it open.
Threading: none; signals for ending are ignored, the end of input is the only one.
"""

import contextlib
import os
import shutil
import signal
import socket
import stat
import sys
import time

_ATTEMPTS = 50
_PAUSE_SECONDS = 0.1


def remove(path: str) -> bool:
    """Remove a file or a folder tree; True when nothing is left.

    A socket that somebody listens on stays: by now it may be that of another run, which was given the same name.
    """
    if _is_served(path):
        return False
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return not os.path.lexists(path)


def _is_served(path: str) -> bool:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            probe.connect(path)
    except BlockingIOError:
        return True  # a listener with a full queue
    except OSError:
        return False
    return True


def main() -> int:
    """Collect paths until the run ends, then remove them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    data: list[str] = []
    paths: list[str] = []
    keep = False
    *orders, _ = sys.stdin.buffer.read().split(b"\0")
    for order in orders:
        verb, _, path = os.fsdecode(order).partition(" ")
        if verb in ("remove", "stray"):
            (data if verb == "remove" else paths).append(path)
        keep = keep or verb == "keep"
    if not keep:
        paths += data
    # Processes of the run are dying at this very moment and may still write: try until it stays empty.
    for _ in range(_ATTEMPTS):
        paths = [path for path in paths if not remove(path)]
        if not paths:
            return 0
        time.sleep(_PAUSE_SECONDS)
    return 1


if __name__ == "__main__":
    sys.exit(main())
