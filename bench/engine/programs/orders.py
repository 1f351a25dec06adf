"""Orders from the parent: JSON lines in, one answer each; whatever else writes to standard output goes to the log.

Threading: one thread.
"""

import json
import os
import sys
import traceback
from typing import Any


def serve(target: Any) -> None:
    """Call the method that each order names, until the input ends."""
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
