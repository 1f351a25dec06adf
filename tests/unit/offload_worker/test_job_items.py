"""Decoding the columns of a job."""

import numpy as np
import pytest

from blockyard.core.errors import RequestError
from blockyard.core.vocabulary import JobKind, Lane
from blockyard.testing.worker_jobs import TEST_EPOCH, TEST_IDENTITY
from blockyard.wire.worker_channel import Items, Job
from blockyard_offload_worker.job_items import copy_items, free_items, row_items


def column(kind: str, *values: int) -> bytes:
    return np.array(values, dtype=kind).tobytes()


def items() -> Items:
    columns = {
        "digests": b"a" * 32 + b"b" * 32,
        "parents": bytes(16) + b"a" * 16,
        "positions": column("<u4", 0, 1),
        "src_index": column("<u4", 7, 8),
        "src_generation": column("<u8", 70, 80),
        "dst_index": column("<u4", 3, 4),
        "dst_generation": column("<u8", 1, 2**55),
    }
    return Items(count=2, **columns)


def test_every_item_gets_its_entry_of_each_column() -> None:
    first, second = copy_items(items())
    assert (first.source, first.source_mark, first.target, first.grant) == (7, 70, 3, 1)
    assert (second.digest, second.parent) == (b"b" * 32, b"a" * 16)
    assert (second.index, second.position, second.target_mark) == (1, 1, 2**55)


def row_job(kind: JobKind, items: Items) -> Job:
    return Job(
        epoch=TEST_EPOCH,
        seq=1,
        worker_epoch=1,
        kind=kind,
        lane=Lane.STORE,
        ttl_ms=1,
        identity=TEST_IDENTITY,
        payload_bytes=1,
        items=items,
    )


@pytest.mark.parametrize("kind", [JobKind.G1_G2, JobKind.G2_G1])
def test_a_row_has_its_pages_and_one_slot(kind: JobKind) -> None:
    engine = column("<u4", 4, 5, 6, 7), column("<u8", 1, 2, 3, 2**63)
    slots = column("<u4", 8, 9), column("<u8", 80, 90)
    (source, target) = (engine, slots) if kind is JobKind.G1_G2 else (slots, engine)
    found = Items(
        count=2,
        digests=b"a" * 32 + b"b" * 32,
        parents=bytes(16) + b"a" * 16,
        positions=column("<u4", 0, 1),
        src_index=source[0],
        src_generation=source[1],
        dst_index=target[0],
        dst_generation=target[1],
    )
    first, second = row_items(row_job(kind, found), 2)
    assert (first.slot, first.generation, first.pages.tolist(), first.guards.tolist()) == (8, 80, [4, 5], [1, 2])
    assert (second.slot, second.generation, second.pages.tolist()) == (9, 90, [6, 7])
    assert (second.digest, second.parent, second.position) == (b"b" * 32, b"a" * 16, 1)
    with pytest.raises(RequestError, match="per_row=4"):
        row_items(row_job(kind, found), 4)


def test_a_free_job_needs_only_its_targets() -> None:
    found = free_items(
        Items(
            count=1,
            digests=b"",
            parents=b"",
            positions=b"",
            dst_index=column("<u4", 5),
            dst_generation=column("<u8", 9),
        )
    )
    assert [(item.index, item.slot, item.generation) for item in found] == [(0, 5, 9)]
