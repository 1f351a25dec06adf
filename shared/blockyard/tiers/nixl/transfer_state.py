"""How a posted request of NIXL stands, the same for every backend.

An agent makes progress only while it is polled, and a request must not be released before a poll said that it ended.
Threading: that of the agent, one call at a time.
"""

from enum import Enum, unique
from typing import Any

from blockyard.tiers.nixl.sdk_errors import NIXL_ERRORS


@unique
class TransferState(Enum):
    """What a poll found."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """At least one part failed, and all have ended: the buffers are ours again."""


def poll_request(agent: Any, handle: Any, *, refused: bool) -> TransferState:
    """Make progress and look at one request; ``refused``: posting it failed, so its parts did not all move."""
    try:
        state = agent.check_xfer_state(handle)
    except NIXL_ERRORS:
        return TransferState.FAILED
    if state == "PROC":
        return TransferState.RUNNING
    return TransferState.DONE if state == "DONE" and not refused else TransferState.FAILED
