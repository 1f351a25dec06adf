"""Why a hit ended where it ended: the words that engines, metrics and operators share.

Invariants: values travel on the wire and are label values of metrics, so they never change meaning. Every request that
asked the block-manager gets exactly one, that of the first block which was not loaded.
Threading: values only.
"""

from enum import StrEnum, unique
from typing import Final


@unique
class MissReason(StrEnum):
    """What ended the hit of a request."""

    FULL_HIT = "full_hit"
    """Nothing did: all that may be loaded of the prompt is local or loaded."""
    SHORTER_THAN_A_BLOCK = "shorter_than_a_block"
    """The prompt has no whole block."""
    NOT_STORED = "not_stored"
    """No tier that was asked holds the next block."""
    UNKNOWN_SOURCE = "unknown"
    """A source that may hold the next block could not be asked."""
    WINDOW_NOT_RESTORABLE = "window_not_restorable"
    """A tier holds the next block, but another group of the model could not go on after it."""
    LOOKUP_LATE = "lookup_late"
    """The answer of the block-manager came later than the request could wait."""
    TOO_DEAR = "too_dear"
    """By the measured times, computing the rest is faster than loading it."""
    NOT_ENOUGH_SAMPLES = "not_enough_samples"
    """The tier of the next block, or prefill, has not been measured often enough to be trusted with a request."""
    SWITCHED_OFF = "switched_off"
    """An operator switched loads off."""
    REQUEST_OPTED_OUT = "request_opted_out"
    """The request asked not to be served from lower tiers."""
    NOT_CONNECTED = "not_connected"
    """The engine had no block-manager to ask."""
    LOAD_FAILED = "load_failed"
    """A load began, and a block of it could not be read or was damaged."""
    LOAD_LATE = "load_late"
    """A load began and did not end before its deadline."""
    NO_ROOM = "no_room"
    """No room for the blocks, in the engine's memory or in host memory."""
    REQUEST_ENDED = "request_ended"
    """The request ended before its load did."""
    OTHER = "other"
    """A reason that this version does not know."""

    @property
    def sentence(self) -> str:
        """The reason in plain words, for operators."""
        return _SENTENCES[self]


def reason_of(text: str) -> MissReason:
    """The reason with this name; one of a later version of the engine side is OTHER."""
    try:
        return MissReason(text)
    except ValueError:
        return MissReason.OTHER


_SENTENCES: Final = {
    MissReason.FULL_HIT: "everything that may be loaded of the prompt was local or loaded",
    MissReason.SHORTER_THAN_A_BLOCK: "the prompt has no whole block",
    MissReason.NOT_STORED: "no tier that was asked held the next block",
    MissReason.UNKNOWN_SOURCE: "a tier that may hold the next block could not be asked",
    MissReason.WINDOW_NOT_RESTORABLE: "another KV group of the model could not go on after the next block",
    MissReason.LOOKUP_LATE: "the block-manager answered later than the request could wait",
    MissReason.TOO_DEAR: "by the measured times, computing the rest was faster than loading it",
    MissReason.NOT_ENOUGH_SAMPLES: "the tier of the next block, or prefill, has not been measured often enough yet",
    MissReason.SWITCHED_OFF: "loads are switched off at the node",
    MissReason.REQUEST_OPTED_OUT: "the request asked not to be served from lower tiers",
    MissReason.NOT_CONNECTED: "the engine had no block-manager to ask",
    MissReason.LOAD_FAILED: "a block of the load could not be read or was damaged",
    MissReason.LOAD_LATE: "the load did not end before its deadline",
    MissReason.NO_ROOM: "there was no room for the blocks, in the engine's memory or in host memory",
    MissReason.REQUEST_ENDED: "the request ended before its load did",
    MissReason.OTHER: "the engine gave a reason that this version does not know",
}
