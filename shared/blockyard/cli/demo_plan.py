"""What the proof run does: which requests of the trace in which phase, how large the tiers are, what must come out.

The sizes make every tier work: the engine's memory holds a few requests, G2 some tens, G3 most of what is computed, and
G4 everything. Threading: values only.
"""

from dataclasses import dataclass
from typing import Final

from blockyard.cli.cluster import ClusterPlan


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests ``first ... first + count - 1`` of the trace."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """One proof run."""

    cluster: ClusterPlan
    compute: Requests
    """Computed by A; everything else repeats parts of it."""
    pace: float
    """Factor by which trace time is compressed while A computes."""
    recent: Requests
    """Small enough for G2; served again after dropping the engine's own cache."""
    recent_passes: int
    older: Requests
    """Left G2 long ago, still in G3."""
    shared: Requests
    """Served by B while A lives."""
    after_kill: Requests
    """Served by B only when A is dead; no block of it was in B before, except prefixes shared with ``shared``."""
    untouched: Requests
    """Computed by A and never served by B: the last requests of ``compute``."""
    warm: Requests
    """Served by B after its services were killed; still in its G3."""
    min_verified_blocks: int
    """Fewest blocks to be verified from each of G2, G3 and G4."""


FULL: Final = DemoPlan(
    cluster=ClusterPlan(),
    compute=Requests(0, 320),
    pace=10.0,
    recent=Requests(280, 40),
    recent_passes=5,
    older=Requests(120, 80),
    shared=Requests(0, 150),
    after_kill=Requests(150, 150),
    untouched=Requests(300, 20),
    warm=Requests(220, 80),
    min_verified_blocks=1_000,
)

SHORT: Final = DemoPlan(
    cluster=ClusterPlan(g1_blocks=96, g2_blocks=256, g3_blocks=512, g4_bytes=128 << 20),
    compute=Requests(0, 50),
    pace=20.0,
    recent=Requests(40, 10),
    recent_passes=2,
    older=Requests(5, 10),
    shared=Requests(0, 20),
    after_kill=Requests(20, 20),
    untouched=Requests(40, 10),
    warm=Requests(25, 15),
    min_verified_blocks=10,
)
