"""Builders of transfer jobs as a worker gets them, a pattern of payload bytes, and a scripted permission.

``job_payload(digest, size)`` is the oracle of worker tests: bytes that follow from the digest of their block alone, so
any reader can say whether it got the right ones.
Threading: values only; a ``ScriptedControl`` may be asked from any thread.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from blockyard.core.jobs import GenerationRule, generation_rule
from blockyard.core.vocabulary import (
    ROOT_KEY,
    ChainDigest,
    Generation,
    IdentityDigest,
    ItemStatus,
    JobKind,
    Lane,
    TenantDigest,
    key_of,
)
from blockyard.wire.worker_channel import Items, Job

TEST_IDENTITY = IdentityDigest(hashlib.sha256(b"identity of worker tests").digest())
TEST_TENANT = TenantDigest(b"tenant-of-tests!")
TEST_EPOCH = 7


def named_digest(name: str) -> ChainDigest:
    """Chain digest of a block that a test calls ``name``."""
    return ChainDigest(hashlib.sha256(name.encode()).digest())


def job_payload(digest: ChainDigest | bytes, size_bytes: int) -> npt.NDArray[np.uint8]:
    """Payload of the block with this digest."""
    seed = int.from_bytes(bytes(digest[:8]), "little")
    return np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Move:
    """One item of a job: block ``digest`` from ``source`` to ``target``, each with its guard or generation."""

    digest: ChainDigest
    source: int = 0
    source_mark: int = 0
    target: int = 0
    target_mark: int = 0


def transfer_job(
    kind: JobKind,
    moves: Sequence[Move],
    *,
    payload_bytes: int,
    seq: int = 1,
    epoch: int = TEST_EPOCH,
    worker_epoch: int = 1,
    identity: IdentityDigest = TEST_IDENTITY,
    mapping: int = 0,
    ttl_ms: int = 10_000,
    free_tier: int = 0,
    bad: bool = False,
) -> Job:
    """A job of ``kind`` whose items form a chain from position 0."""
    parents = [ROOT_KEY, *(key_of(move.digest) for move in moves)][: len(moves)]
    return Job(
        epoch=epoch,
        seq=seq,
        worker_epoch=worker_epoch,
        kind=kind,
        lane=Lane.LOAD if kind in (JobKind.G2_G1, JobKind.G3_G2) else Lane.STORE,
        ttl_ms=ttl_ms,
        identity=identity,
        tenant=TEST_TENANT,
        payload_bytes=payload_bytes,
        mapping=mapping,
        free_tier=free_tier,
        bad=bad,
        items=Items(
            count=len(moves),
            digests=b"".join(move.digest for move in moves),
            parents=b"".join(parents),
            positions=_column("<u4", range(len(moves))),
            src_index=_column("<u4", (move.source for move in moves)),
            src_generation=_column("<u8", (move.source_mark for move in moves)),
            dst_index=_column("<u4", (move.target for move in moves)),
            dst_generation=_column("<u8", (move.target_mark for move in moves)),
        ),
    )


@dataclass(slots=True)
class ScriptedControl:
    """Permission to issue: by the generation rule of ``job``, except for the items in ``forbidden``."""

    job: Job
    forbidden: set[int] = field(default_factory=set)
    cancelled: bool = False
    asked: list[int] = field(default_factory=list)
    waited_seconds: float = 0.0
    """How long the job waited before it was started."""

    @property
    def remaining_seconds(self) -> float:
        """What the wait before the start left of the job's time."""
        return self.job.ttl_ms / 1_000 - self.waited_seconds

    def may_issue(self, item: int, header: Generation | None = None) -> ItemStatus:
        """OK, or SKIPPED where the script or the generation forbids the item."""
        self.asked.append(item)
        if self.cancelled or item in self.forbidden:
            return ItemStatus.SKIPPED
        if header is None:
            return ItemStatus.OK
        granted = int(np.frombuffer(self.job.items.dst_generation, "<u8")[item])
        equal = generation_rule(self.job.kind) is GenerationRule.EQUAL
        fits = granted == header if equal else granted > header
        return ItemStatus.OK if fits else ItemStatus.SKIPPED

    def index_is_pending(self) -> None:
        """Nothing to remember."""


def _column(kind: str, values: Iterable[int]) -> bytes:
    return np.fromiter(values, dtype=kind).tobytes()
