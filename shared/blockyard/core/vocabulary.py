"""The words of the domain as types: ids, hashes, tiers and outcomes.

Invariants: ids and hashes are NewTypes, so a raw int or bytes never passes for one under mypy; every outcome is an
enum whose numeric value is what travels on the wire and therefore never changes meaning.
Threading: values only, no state.
"""

from enum import IntEnum, StrEnum, unique
from typing import Final, NewType

BlockId = NewType("BlockId", int)
"""Row of the block table of one tier; equals the slot index of its bytes in G2 (arena) and G3 (slab)."""

EngineBlockId = NewType("EngineBlockId", int)
"""Index of a block in the memory of one engine (G1)."""

Generation = NewType("Generation", int)
"""Names one grant of a slot; rises with every grant, so a writer of an older grant is recognised."""

Guard = NewType("Guard", int)
"""Value of an engine's guard word for one G1 block; it changes before the block is rewritten or freed."""

Epoch = NewType("Epoch", int)
"""Names one life of a process; monotone over restarts of the same state folder."""

JobSeq = NewType("JobSeq", int)
"""Number of a transfer job, counted per epoch of the block-manager, from 1."""

EventSeq = NewType("EventSeq", int)
"""Number of an event, contiguous from 1 per epoch of its publisher."""

GroupId = NewType("GroupId", int)
"""KV group of a model (full attention, window, state, ...); 0 where a model has one group."""

ContentKey = NewType("ContentKey", bytes)
"""16 bytes: the first half of a chain digest; names a block and its whole prefix."""

ChainDigest = NewType("ChainDigest", bytes)
"""32 bytes: SHA-256 chain over identity, scope, parent and tokens; what a reader compares."""

IdentityDigest = NewType("IdentityDigest", bytes)
"""32 bytes: digest of a model identity."""

TenantDigest = NewType("TenantDigest", bytes)
"""16 bytes: digest of a tenant name; all zero for the default tenant."""

PackId = NewType("PackId", bytes)
"""16 bytes: content key of the last block in a G4 pack."""

NodeName = NewType("NodeName", str)
EngineId = NewType("EngineId", str)
SessionId = NewType("SessionId", str)
"""One registration of an engine with a block-manager; ends with the connection or the block-manager's life."""

RequestId = NewType("RequestId", str)
LoadId = NewType("LoadId", int)

DIGEST_BYTES: Final = 32
KEY_BYTES: Final = 16
ROOT_KEY: Final = ContentKey(bytes(KEY_BYTES))
"""Parent of the first block of every chain."""
DEFAULT_TENANT: Final = TenantDigest(bytes(16))


def key_of(digest: ChainDigest | bytes) -> ContentKey:
    """Content key of a chain digest: its first 16 bytes."""
    return ContentKey(bytes(digest[:KEY_BYTES]))


@unique
class Tier(IntEnum):
    """Where a copy of a block lies."""

    G1 = 1
    """Memory of an engine."""
    G2 = 2
    """Host memory: the node's arena."""
    G3 = 3
    """Local NVMe: slab files."""
    G4 = 4
    """Object store shared by all nodes."""

    @property
    def label(self) -> str:
        """Lower-case name for metrics, URLs and logs."""
        return self.name.lower()


@unique
class Availability(IntEnum):
    """Answer of a lookup for one block: the best source, a definite miss, or not known."""

    MISS = 0
    G2 = 2
    G3 = 3
    G4 = 4
    UNKNOWN = 255
    """A source could not be asked (starting, unreachable, timed out). Never the same as a miss."""

    @property
    def is_hit(self) -> bool:
        """True where some tier holds the block."""
        return self in (Availability.G2, Availability.G3, Availability.G4)


@unique
class ItemStatus(IntEnum):
    """Result of one block of a transfer job or of a load."""

    OK = 0
    CORRUPT = 1
    """Bytes do not match their header; the source copy is condemned."""
    STALE = 2
    """The source slot was granted to another block meanwhile; nothing is marked."""
    SOURCE_CHANGED = 3
    """The engine's guard moved: the G1 block was reused during or before the copy."""
    NOT_FOUND = 4
    IDENTITY_MISMATCH = 5
    IO_ERROR = 6
    NO_SPACE = 7
    TIMEOUT = 8
    SKIPPED = 9
    """Not touched: the command was of an older life, an older grant, or too late."""
    UNKNOWN = 10
    """The process that worked on it is gone or its source cannot be asked."""


@unique
class JobKind(IntEnum):
    """What a transfer job does."""

    G1_G2 = 1
    G2_G1 = 2
    G2_G3 = 3
    G3_G2 = 4
    G4_PUT = 5
    G4_GET = 6
    FREE = 7
    """Write FREE headers, so that a restart does not bring the blocks back."""
    SEAL = 8
    """Slots of the arena that ranks have written: hash the payload and make the header READY."""
    CHECK = 9
    """Slots of the arena that ranks are about to read: compare the payload with its header."""


@unique
class Executor(StrEnum):
    """Who copies between the KV memory of an engine and the arena."""

    MAPPED = "mapped"
    """The offload-worker, by plain copies between memory that it maps."""
    NIXL = "nixl"
    """The offload-worker, by NIXL."""
    ENGINE = "engine"
    """The ranks of the engine, between their own memory and granted slots of the arena."""


@unique
class JobEnd(IntEnum):
    """How a job ended as a whole; the items say what became of each block."""

    DONE = 0
    EXPIRED = 1
    CANCELLED = 2


@unique
class Lane(IntEnum):
    """Priority of a job: a request waits for LOAD, nothing waits for STORE."""

    LOAD = 0
    STORE = 1


@unique
class WorkerRole(IntEnum):
    """Which worker of a node executes a job."""

    OFFLOAD_WORKER = 1
    REMOTE_TIER = 2

    @property
    def label(self) -> str:
        """Name of the service, as in commands, folders and logs."""
        return self.name.lower().replace("_", "-")
