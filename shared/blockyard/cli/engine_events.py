"""Events that a demo engine prints, one JSON object per line.

The other half of ``connectors.mock.command_loop``; counts are in blocks unless named otherwise.
Threading: values only.
"""

import msgspec


class TierCounts(msgspec.Struct, frozen=True):
    """Blocks by the tier their bytes came from."""

    G2: int = 0
    G3: int = 0
    G4: int = 0

    def plus(self, other: "TierCounts") -> "TierCounts":
        """Sum by tier."""
        return TierCounts(self.G2 + other.G2, self.G3 + other.G3, self.G4 + other.G4)


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of an engine since its start."""

    requests: int = 0
    asked: int = 0
    g1_hits: int = 0
    computed: int = 0
    unknown: int = 0
    failed: int = 0
    refused_calls: int = 0
    late_answers: int = 0
    wrong_blocks: int = 0
    wrong_bytes: int = 0
    verified: TierCounts = TierCounts()
    """Loaded blocks all of whose bytes were found right."""
    foreign: TierCounts = TierCounts()
    """Verified blocks that another engine had computed."""


class BlockReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a probed block; names as in ``Availability``, ``ItemStatus`` and ``Tier``."""

    key: str
    availability: str | None = None
    status: str | None = None
    source: str | None = None
    wrong_bytes: int = 0


class Ready(msgspec.Struct, frozen=True, tag_field="event", tag="ready"):
    """Connected; the trace has so many requests."""

    requests: int


class Progress(msgspec.Struct, frozen=True, tag_field="event", tag="progress"):
    """On the way in a replay."""

    served: int
    of: int
    stats: EngineStats


class Done(msgspec.Struct, frozen=True, tag_field="event", tag="done"):
    """A command ended."""

    cmd: str
    stats: EngineStats = EngineStats()
    block: BlockReport | None = None


class Failed(msgspec.Struct, frozen=True, tag_field="event", tag="error"):
    """A command failed."""

    detail: str
    code: str = ""


EngineEvent = Ready | Progress | Done | Failed
