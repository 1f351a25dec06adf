"""From an order to the job message of the worker channel: packed columns, little-endian.

Pure functions. Threading: no state.
"""

from collections.abc import Iterable

import numpy as np

from blockyard.core.vocabulary import Epoch, JobSeq
from blockyard.wire.worker_channel import Items, Job
from blockyard_block_manager.job_order import JobOrder


def job_message(
    order: JobOrder, *, epoch: Epoch, seq: JobSeq, worker_epoch: Epoch, ttl_ms: int, payload_bytes: int
) -> Job:
    """The message that hands ``order`` over under the number ``seq``."""
    return Job(
        epoch=epoch,
        seq=seq,
        worker_epoch=worker_epoch,
        kind=order.kind,
        lane=order.lane,
        ttl_ms=ttl_ms,
        identity=order.scope.identity,
        tenant=order.scope.tenant,
        group=order.scope.group,
        payload_bytes=payload_bytes,
        items=_items(order),
        mapping=order.mapping,
        packs=order.packs,
        free_tier=order.free_tier,
        bad=order.bad,
    )


def _items(order: JobOrder) -> Items:
    return Items(
        count=order.count,
        digests=b"".join(name.digest for name in order.names),
        parents=b"".join(name.parent for name in order.names),
        positions=_u32(name.position for name in order.names),
        src_index=_u32(order.source.indexes),
        src_generation=_u64(order.source.marks),
        dst_index=_u32(order.target.indexes),
        dst_generation=_u64(order.target.marks),
    )


def _u32(values: Iterable[int]) -> bytes:
    return np.fromiter(values, dtype="<u4").tobytes()


def _u64(values: Iterable[int]) -> bytes:
    return np.fromiter(values, dtype="<u8").tobytes()
