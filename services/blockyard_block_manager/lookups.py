"""One lookup over all tiers: local tables at once, the shared index for the rest, within the time given.

Invariants: takes nothing and changes nothing; *miss* is said only where every tier that was asked said so; with no
time for the shared index the answer is about the node alone. What lies in the store is no hit while no slot may be
granted for it.
Threading: one event loop.
"""

from collections.abc import Sequence

from blockyard.core.block_name import BlockName, select
from blockyard.core.events import BlockScope
from blockyard.core.vocabulary import Availability, Tier, WorkerRole
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.remote_index import RemoteIndex


def local_sources(core: NodeCore, scope: BlockScope, names: Sequence[BlockName]) -> list[Availability]:
    """Best local source per block.

    What nobody can load is no hit: UNKNOWN throughout while the tables cannot say, or the offload-worker hangs, and for
    what lies below G2 while no slot may be granted.
    """
    tables = core.tables
    if not tables.serving or not core.desk.answering(WorkerRole.OFFLOAD_WORKER):
        return [Availability.UNKNOWN] * len(names)
    keys = [name.key for name in names]
    upper = tables.holds(Tier.G2, keys, scope.group)
    lower = tables.holds(Tier.G3, keys, scope.group)
    below = Availability.G3 if tables.grants_open else Availability.UNKNOWN
    return [
        Availability.G2 if in_g2 else below if in_g3 else Availability.MISS
        for in_g2, in_g3 in zip(upper, lower, strict=True)
    ]


async def look_up(
    core: NodeCore,
    index: RemoteIndex,
    scope: BlockScope,
    names: Sequence[BlockName],
    remote_seconds: float,
    trace: TraceParent = NO_TRACE,
) -> list[Availability]:
    """Best source of each block; counts the lookup with its hits, misses and unknowns."""
    with core.spans.lookup(trace, len(names)) as span:
        answer = local_sources(core, scope, names)
        absent = [place for place, availability in enumerate(answer) if availability is Availability.MISS]
        if absent and remote_seconds > 0 and core.profile.g4_enabled:
            wanted = select(names, absent)
            found = await index.ask(scope, wanted, remote_seconds, span.traceparent)
            core.index_found(
                [name.key for name, (status, _) in zip(wanted, found, strict=True) if status is Availability.G4],
                scope.group,
            )
            for place, (availability, _) in zip(absent, found, strict=True):
                unreachable = availability is Availability.G4 and not core.tables.grants_open
                answer[place] = Availability.UNKNOWN if unreachable else availability
        core.answered(answer)
        core.spans.looked_up(span, answer)
    return answer
