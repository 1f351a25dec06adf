"""Decoding the columns of a job."""

import numpy as np

from blockyard.wire.worker_channel import Items
from blockyard_offload_worker.job_items import copy_items, free_items


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
