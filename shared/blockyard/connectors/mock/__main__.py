"""Entry point of the demo engine; see ``engine_program``.

It loads next to nothing before signals have a meaning: the first process of a container is immune to those that it does
not handle, and until the engine runs there is nothing to end in order.
Threading: main thread only.
"""

import os
import signal
import sys
from types import FrameType
from typing import Final

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_SIGNALLED: Final = 128
"""Exit codes of a shell for what a signal ended begin here."""


def main() -> int:
    """Run the demo engine; its exit code."""
    for number in _STOPPING:
        signal.signal(number, _end_at_once)
    from blockyard.connectors.mock.engine_program import run_engine

    return run_engine()


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    # Not an exception: it could surface anywhere in a half-loaded module, and be reported there as its failure.
    os._exit(_SIGNALLED + number)


if __name__ == "__main__":
    sys.exit(main())
