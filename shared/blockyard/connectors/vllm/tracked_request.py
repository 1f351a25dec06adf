"""What the scheduler half knows of one request of the engine.

Threading: the scheduler's thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, final

from blockyard.connectors.vllm.block_tables import BlockTable
from blockyard.connectors.vllm.prefix_hit import Found, PrefixHit
from blockyard.core.kv_groups import KvGroup


class EngineRequest(Protocol):
    """A request as the engine has it."""

    request_id: str
    num_preemptions: int
    kv_transfer_params: Mapping[str, Any] | None

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and output so far."""
        ...

    @property
    def block_hashes(self) -> Sequence[bytes]:
        """Hashes of the whole blocks, each with all before it."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """How the engine's memory and names fit the node's blocks."""

    groups: tuple[KvGroup, ...]
    block_tokens: int
    hash_tokens: int
    """Tokens of one block hash of the engine."""
    row_bytes: int
    """Bytes of a row of all groups together, all ranks."""
    ranks: int
    reads: bool = True
    """Whether anything is loaded: not where the engine's role is that of a producer alone."""
    writes: bool = True
    """Whether anything is stored: not where the engine's role is that of a consumer alone."""

    @property
    def hashes_per_row(self) -> int:
        """Block hashes of one row."""
        return self.block_tokens // self.hash_tokens


@final
@dataclass(slots=True)
class TrackedRequest:
    """One request, from its arrival to the end of everything that was begun for it."""

    request: EngineRequest
    opted_out: bool
    tables: list[BlockTable] = field(default_factory=list)
    next_row: list[int] = field(default_factory=list)
    """Per group: the first row that was not listed as complete yet."""

    attempt: int = 0
    """Number of its latest lookup; a preempted request asks anew."""
    preemptions: int = 0
    asked_at: float = 0.0
    answered: bool = False
    found: Found | None = None
    lookup_seconds: float = 0.0

    local_tokens: int = 0
    admitting: bool = False
    """The engine asked how much there is to load, and has not allocated since."""
    hit: PrefixHit | None = None
    leased_at: float | None = None
    declined: bool = False
    """A load of it failed: what is left is computed."""
    load: int = 0
    """Number of the load under way; 0 = none."""

    unreported: int = 0
    """Steps that wrote rows of it and were not reported by all ranks."""
    tickets: set[int] = field(default_factory=set)
    """Registrations whose stores are not settled."""
    finished: bool = False
    held_until: float | None = None
    """The engine keeps its blocks, at most until then."""

    @property
    def request_id(self) -> str:
        """Name of the request."""
        return self.request.request_id

    @property
    def storing(self) -> bool:
        """Whether a store of its rows may be wanted or under way."""
        return bool(self.unreported or self.tickets)
