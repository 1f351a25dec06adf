"""Orders from the parent: JSON lines in, one answer each; whatever else writes to standard output goes to the log.

Standard library only: this runs in the environments of engines and peers. ``bench.child`` is the other end.
Invariants: the program ends with its input, and with its parent, in the middle of an order too.
Threading: one thread.
"""

import ctypes
import json
import os
import signal
import sys
import traceback
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1


def serve(target: Any) -> None:
    """Call the method that each order names, until the input ends or the parent does."""
    # A parent that ended before this line has left an input that ends at once.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"result": getattr(target, order.pop("order"))(**order)}
        # What went wrong here is told to the parent, who decides what it means.
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
