"""Words shared by both ends of a job channel: the name of a job, what became of it, why it was refused.

::

    block-manager: PLANNED -> SENT -> ACTIVE -> settled         (CANCELLING between any of them and settled)
    worker:        unseen -> QUEUED -> RUNNING -> ENDED -> acknowledged        unseen -> TOMBSTONE

Threading: values only.
"""

from enum import IntEnum, StrEnum, unique
from typing import Final, NamedTuple

from blockyard.core.vocabulary import Epoch, JobKind, JobSeq, Tier

SEQ_WINDOW: Final = 65_536
"""Jobs have numbers below ``settled_below + SEQ_WINDOW``: bounds what a worker must remember about ids."""


class JobId(NamedTuple):
    """Name of a job: the life of the block-manager that planned it, and its number in that life."""

    epoch: Epoch
    seq: JobSeq


@unique
class JobPhase(StrEnum):
    """State of a job at its worker, as told by cancel and poll."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    """Its result was or will be pushed."""
    UNSEEN = "unseen"
    """It never arrived, and will have no effect should it still arrive."""


@unique
class Refusal(StrEnum):
    """Why a worker will never run a job."""

    STALE_EPOCH = "stale_epoch"
    """A newer life of the block-manager is attached; says nothing about the job itself."""
    STALE_WORKER = "stale_worker"
    """The job was meant for an earlier life of the worker."""
    SETTLED = "settled"
    TOMBSTONE = "tombstone"
    BAD_REQUEST = "bad_request"
    NO_MAPPING = "no_mapping"


@unique
class GenerationRule(IntEnum):
    """What the generation of a job's destination must be, compared with the header that lies there."""

    NONE = 0
    """The destination has no slot header (engine memory, object store)."""
    HIGHER = 1
    EQUAL = 2
    """Freeing and sealing: the header must still be the one that was meant."""


LAST_HOPS: Final = frozenset({JobKind.G2_G1, JobKind.CHECK})
"""Kinds that end a load, which waits for them whatever its deadline; carried out by the process of the worker alone."""
_SLOT_TIERS: Final = {
    JobKind.G1_G2: Tier.G2,
    JobKind.G2_G3: Tier.G3,
    JobKind.G3_G2: Tier.G2,
    JobKind.G4_GET: Tier.G2,
    JobKind.SEAL: Tier.G2,
}
_SAME_GENERATION: Final = frozenset({JobKind.FREE, JobKind.SEAL})
"""Jobs on slots whose grant was written into the header before: by an earlier write, or by the ranks that wrote."""


def generation_rule(kind: JobKind) -> GenerationRule:
    """How a job of this kind compares destination and header generation."""
    if kind in _SAME_GENERATION:
        return GenerationRule.EQUAL
    return GenerationRule.HIGHER if kind in _SLOT_TIERS else GenerationRule.NONE


def destination_tier(kind: JobKind, free_tier: int = 0) -> Tier | None:
    """Tier whose slots a job of this kind writes; None where its destinations are not slots."""
    if kind is JobKind.FREE:
        return Tier(free_tier) if free_tier in (Tier.G2, Tier.G3) else None
    return _SLOT_TIERS.get(kind)
