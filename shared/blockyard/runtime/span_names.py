"""Names of all spans and of their attributes: the only place where they are written.

Names of messaging are those of OpenTelemetry's conventions; everything of our own begins with ``blockyard.``. What is
counted per status, tier or source has one attribute each, e.g. ``blockyard.items.ok``.
Threading: values only.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum, unique
from typing import Final


@unique
class SpanName(StrEnum):
    """What a span is about."""

    LOOKUP = "lookup"
    """block-manager: an engine, or somebody over REST, asks where blocks lie."""
    STORE = "store"
    """block-manager: an engine registers a batch of blocks."""
    LOAD = "load"
    """block-manager: from the call of an engine until every block of it has its status."""
    JOB = "job"
    """block-manager: one order of a transfer, from the decision until it is settled."""
    TRANSFER = "transfer"
    """A worker carries out a job, from its turn to its end."""
    INDEX_FIND = "index.find"
    """One question to the shared index, on either side of the channel."""
    PACK_GET = "pack.get"
    """remote-tier: one ranged read of an object, repeats included."""
    PACK_PUT = "pack.put"
    """remote-tier: one conditional write of an object, repeats included."""
    PACK_REPLACE = "pack.replace"
    """remote-tier: one write over a damaged object."""
    PACK_HEAD = "pack.head"
    """remote-tier: one question about an object."""
    PUBLISH = "publish"
    """block-manager: one event on its way to NATS, until it is acknowledged."""


BLOCKS: Final = "blockyard.blocks"
BYTES: Final = "blockyard.bytes"
ITEMS: Final = "blockyard.items"
HITS: Final = "blockyard.hits"
MISSES: Final = "blockyard.misses"
UNKNOWN: Final = "blockyard.unknown"
NEW_BLOCKS: Final = "blockyard.new_blocks"
PLANNED_STORES: Final = "blockyard.planned_stores"
LOADED: Final = "blockyard.loaded"
STATUS: Final = "blockyard.status"
JOB_KIND: Final = "blockyard.job.kind"
JOB_END: Final = "blockyard.job.end"
JOB_WORKER: Final = "blockyard.job.worker"
EDGE: Final = "blockyard.edge"
WAIT_SECONDS: Final = "blockyard.wait_seconds"
"""Until a job went to its worker; in a transfer: from its arrival to its turn."""

MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_DESTINATION: Final = "messaging.destination.name"
MESSAGING_OPERATION_NAME: Final = "messaging.operation.name"
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGING_MESSAGE_ID: Final = "messaging.message.id"
MESSAGING_BODY_BYTES: Final = "messaging.message.body.size"


def counts(prefix: str, labels: Iterable[str]) -> dict[str, int]:
    """One attribute per label: how often it occurs."""
    return {f"{prefix}.{label}": count for label, count in Counter(labels).items()}
