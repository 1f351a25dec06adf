"""Lines of this package in the log of the engine.

vLLM shows what is written under its own name and leaves the root logger alone: a warning of another package comes out
bare, without time, process and level, and what is no warning not at all. So lines of ours are handed on under
``vllm.blockyard``, and where and from which level on they are shown is the engine's own setting.
Invariants: a line comes out once; where somebody has given ``blockyard`` a handler of its own, nothing is changed.
Threading: any thread writes; ``join_engine_log`` is called while the engine starts.
"""

import copy
import logging
from typing import Final, final

ENGINE: Final = "vllm"
_OURS: Final = "blockyard"


@final
class HandOn(logging.Handler):
    """Writes lines under the name of the engine."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, if the engine shows lines of its level."""
        logger = logging.getLogger(f"{ENGINE}.{record.name}")
        if logger.isEnabledFor(record.levelno):
            handed_on = copy.copy(record)
            handed_on.name = logger.name
            logger.handle(handed_on)


def join_engine_log() -> None:
    """Have lines of this package appear in the log of the engine. Harmless to repeat."""
    ours = logging.getLogger(_OURS)
    if ours.handlers:
        return
    ours.addHandler(HandOn())
    ours.propagate = False
    if ours.level == logging.NOTSET:
        # The engine's, and not that of a root logger that nobody configured.
        ours.setLevel(logging.getLogger(ENGINE).getEffectiveLevel())
