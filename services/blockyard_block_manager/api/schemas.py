"""Bodies of the API, version 1.

Threading: values.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

from blockyard.core.eviction.retention import HIGHEST_PRIORITY
from blockyard.wire.codec import MAX_KEYS_PER_CALL

_LONGEST_HINT_SECONDS: Final = 366 * 86_400.0

DIGEST_PATTERN = r"^[0-9a-f]{64}$"
KEY_PATTERN = r"^[0-9a-f]{32}$"
Digest = Annotated[str, Field(pattern=DIGEST_PATTERN, description="32 bytes as lower-case hex.")]
Key = Annotated[str, Field(pattern=KEY_PATTERN, description="16 bytes as lower-case hex.")]
AvailabilityName = Literal["g2", "g3", "g4", "miss", "unknown"]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tier(_Body):
    """Blocks of one tier of this node."""

    tier: Literal["g1", "g2", "g3", "g4"]
    available: bool = Field(description="False while nobody can say what the tier holds: blocks are then unknown.")
    capacity_blocks: int | None = Field(
        description="Null where the node does not know it (engines, shared store); else the sum of the blocks that are "
        "registered, writing, freeing, free and abandoned."
    )
    registered_blocks: int
    pinned_blocks: int = Field(description="Blocks that a lease, a load or a transfer holds.")
    writing_blocks: int
    freeing_blocks: int = Field(description="Slots that wait until their header says that they are free.")
    free_blocks: int
    abandoned_blocks: int = Field(description="Slots out of use until a restart: their writer was lost sight of.")
    block_bytes: int


class Tiers(_Body):
    """All tiers of this node."""

    tiers: list[Tier]


class Worker(_Body):
    """One worker process of this node."""

    name: str
    phase: Literal["away", "listing", "ready"]
    epoch: int | None
    mover: str
    open_jobs: int


class ThisNode(_Body):
    """The node that answers."""

    instance: str
    epoch: int
    block_bytes: int
    block_tokens: int
    engines: int
    open_loads: int
    leases: int
    pins: int
    last_event: int
    workers: list[Worker]


class OtherNode(_Body):
    """A node with a live lease, this one included."""

    instance: str
    epoch: int
    api_url: str
    engines: list[str]
    version: str


class Nodes(_Body):
    """This node, and all nodes with a live lease."""

    this: ThisNode
    known: bool = Field(description="False while the event bus is away: then nothing is known about others.")
    nodes: list[OtherNode]


class Engine(_Body):
    """One engine connected to this node."""

    engine: str
    dp_rank: int
    session: str
    model: str
    identity: Digest
    blocks: int = Field(description="Engine blocks, the unit of the engine's own paging.")
    executor: Literal["mapped", "nixl", "engine"] = Field(
        description="Who copies: the offload-worker, by plain copies or by NIXL, or the ranks of the engine."
    )
    ranks: int
    complete: bool = Field(description="Whether all ranks are attached.")
    registered_blocks: int = Field(description="Blocks of this node's size that are complete in engine memory.")
    mapped: bool = Field(description="False while the offload-worker does not map its memory.")


class Engines(_Body):
    """All engines connected to this node."""

    engines: list[Engine]


class LookupRequest(_Body):
    """Which of these blocks could be loaded here, and from where?"""

    # Numbers are numbers: neither true nor "1" is one.
    model_config = ConfigDict(strict=True)

    identity: Digest = Field(description="Digest of the model identity.")
    # Thousands of wrong digests would take the event loop longer than any right request.
    digests: Annotated[list[Digest], FailFast()] = Field(
        max_length=MAX_KEYS_PER_CALL, description="Chain digests in order."
    )
    first_position: int = Field(default=0, ge=0, le=2**32 - 1)
    parent: Key = Field(default="0" * 32, description="Content key of the block before the first.")
    tenant: Key = Field(default="0" * 32, description="Digest of the tenant.")
    remote_wait_ms: int = Field(default=0, ge=0, le=10_000, description="Time for the shared index; 0: this node only.")


class LookupReply(_Body):
    """One answer per block, and how long a prefix could be loaded."""

    availability: list[AvailabilityName]
    prefix_blocks: int


class ClearReply(_Body):
    """What a clear met, by outcome. With ``done`` a restart brings nothing back."""

    tier: Literal["g2", "g3"]
    done: bool
    removed: int = Field(description="Blocks that nobody held: gone at once.")
    pinned: int = Field(description="Blocks in use: not found any more, freed at the end of their use.")
    doomed: int = Field(description="Blocks that were being written: never kept.")
    dropped: int = Field(description="Stores that had not begun.")
    headers_freed: int = Field(description="Slots whose headers say free by now, also of blocks evicted earlier.")


class ClearReplies(_Body):
    """What a clear of all tiers met, tier by tier."""

    done: bool
    tiers: list[ClearReply]


class KeepRequest(_Body):
    """Blocks that are worth keeping."""

    model_config = ConfigDict(strict=True)

    digests: Annotated[list[Digest], FailFast()] = Field(
        max_length=MAX_KEYS_PER_CALL, description="Chain digests in order."
    )
    priority: int = Field(ge=1, le=HIGHEST_PRIORITY, description="Higher ones stay longer.")
    ttl_seconds: float | None = Field(
        default=None, gt=0, le=_LONGEST_HINT_SECONDS, description="Then they leave first; null: kept until they leave."
    )


class ExpendRequest(_Body):
    """Blocks that will not be wanted again."""

    model_config = ConfigDict(strict=True)

    digests: Annotated[list[Digest], FailFast()] = Field(
        max_length=MAX_KEYS_PER_CALL, description="Chain digests in order."
    )


class HintReply(_Body):
    """How many of the blocks each tier of this node has, in all KV groups; 0 also for a tier that is not there."""

    g2: int
    g3: int


class RequestReport(_Body):
    """What one engine decided for a request at its admission."""

    engine: str
    dp_rank: int
    age_seconds: float = Field(description="Since the engine reported it.")
    prompt_tokens: int
    local_tokens: int = Field(description="Held in the memory of the engine.")
    found_tokens: dict[str, int] = Field(
        description="By tier: tokens of the prefix that could be restored whose best source it was."
    )
    loaded_tokens: int
    reason: str = Field(description="What ended the hit where it ended.")
    explanation: str = Field(description="The reason in plain words.")
    lookup_ms: float


class RequestReports(_Body):
    """All that this node remembers of a request."""

    request: str
    reports: list[RequestReport] = Field(description="One per engine that had a request of this name, the latest last.")


class Loading(_Body):
    """Whether engines of this node are served from lower tiers. On again at the next start of the block-manager."""

    model_config = ConfigDict(strict=True)

    enabled: bool


class Problem(BaseModel):
    """An error (RFC 9457); further members name what failed."""

    type: str
    title: str
    status: int
    remedy: str = Field(description="What to do next.")
    detail: str = ""
