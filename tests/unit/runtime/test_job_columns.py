"""Columns of job messages, and permission asked from another thread."""

import subprocess
import sys
import threading

import msgspec
import pytest

from blockyard.core.errors import RequestError
from blockyard.core.job_ledger import JobLedger
from blockyard.core.jobs import JobId
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import Epoch, Generation, ItemStatus, JobKind, JobSeq, Lane
from blockyard.runtime.job_columns import (
    MAX_ITEMS,
    check_job,
    destination_generations,
    destination_slots,
    ticket_of,
)
from blockyard.runtime.job_control import LedgerControl
from blockyard.testing.clock import FakeClock
from blockyard.wire.codec import MAX_PAGES_PER_CALL
from blockyard.wire.worker_channel import Items, Job, Pack


def packed(width: int, *values: int) -> bytes:
    return b"".join(value.to_bytes(width, "little") for value in values)


ITEMS = Items(
    count=2,
    digests=bytes(64),
    parents=bytes(32),
    positions=bytes(8),
    src_index=packed(4, 5, 6),
    src_generation=packed(8, 1, 1),
    dst_index=packed(4, 7, 8),
    dst_generation=packed(8, 3, 1 << 40),
)
PACKS = (
    Pack(pack=bytes(16), first_item=0, count=1, first_position=0, blocks=1, stride_bytes=512),
    Pack(pack=bytes(16), first_item=1, count=1, first_position=1, blocks=1, stride_bytes=512),
)
JOB = Job(
    epoch=9,
    seq=1,
    worker_epoch=50,
    kind=JobKind.G3_G2,
    lane=Lane.LOAD,
    ttl_ms=1_000,
    identity=bytes(32),
    payload_bytes=256,
    items=ITEMS,
    packs=PACKS,
    free_tier=2,
)
NO_TARGET = msgspec.structs.replace(ITEMS, dst_index=b"", dst_generation=b"")
SLOTS_ONLY = Items(
    count=2, digests=b"", parents=b"", positions=b"", dst_index=ITEMS.dst_index, dst_generation=bytes(16)
)


@pytest.mark.parametrize("kind", JobKind)
def test_job_with_all_columns_passes_for_every_kind(kind: JobKind) -> None:
    check_job(msgspec.structs.replace(JOB, kind=kind))


def test_a_job_is_checked_without_importing_anything() -> None:
    """First calls of some functions of numpy import more of it: on a busy machine the event loop stands meanwhile."""
    program = """
import sys
import msgspec
from tests.unit.runtime.test_job_columns import JOB
from blockyard.core.vocabulary import JobKind
from blockyard.runtime.job_columns import check_job
before = set(sys.modules)
for kind in JobKind:
    check_job(msgspec.structs.replace(JOB, kind=kind))
print(sorted(set(sys.modules) - before))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert found.stdout.strip() == "[]"


def test_columns_that_a_kind_does_not_use_may_be_empty() -> None:
    check_job(msgspec.structs.replace(JOB, kind=JobKind.G4_PUT, items=NO_TARGET))
    check_job(msgspec.structs.replace(JOB, kind=JobKind.FREE, items=SLOTS_ONLY))


@pytest.mark.parametrize("column", ["digests", "parents", "positions", "src_index", "src_generation", "dst_index"])
@pytest.mark.parametrize("value", [b"", b"x"])
def test_missing_or_torn_column_is_named(column: str, value: bytes) -> None:
    broken = msgspec.structs.replace(JOB, items=msgspec.structs.replace(ITEMS, **{column: value}))
    with pytest.raises(RequestError) as caught:
        check_job(broken)
    assert caught.value.fields["column"] == column


@pytest.mark.parametrize(
    "broken",
    [
        msgspec.structs.replace(JOB, items=msgspec.structs.replace(ITEMS, count=0)),
        msgspec.structs.replace(JOB, items=msgspec.structs.replace(ITEMS, count=MAX_ITEMS + 1)),
        msgspec.structs.replace(JOB, items=msgspec.structs.replace(ITEMS, count=-1)),
        msgspec.structs.replace(JOB, payload_bytes=0),
        msgspec.structs.replace(JOB, identity=bytes(31)),
        msgspec.structs.replace(JOB, tenant=bytes(17)),
        msgspec.structs.replace(JOB, group=-1),
        msgspec.structs.replace(JOB, group=1 << 16),
        msgspec.structs.replace(JOB, items=msgspec.structs.replace(ITEMS, dst_generation=packed(8, 1, 1 << 56))),
        msgspec.structs.replace(JOB, items=msgspec.structs.replace(ITEMS, dst_index=packed(4, 7, 7))),
        msgspec.structs.replace(JOB, kind=JobKind.FREE, free_tier=1),
        msgspec.structs.replace(JOB, kind=JobKind.G3_G2, items=NO_TARGET),
        msgspec.structs.replace(JOB, kind=JobKind.G4_GET, packs=()),
        msgspec.structs.replace(JOB, kind=JobKind.G4_GET, packs=PACKS[:1]),
        msgspec.structs.replace(JOB, kind=JobKind.G4_PUT, packs=PACKS[::-1]),
    ],
)
def test_job_that_cannot_be_is_refused(broken: Job) -> None:
    with pytest.raises(RequestError):
        check_job(broken)


def test_a_guard_may_have_all_bits() -> None:
    items = msgspec.structs.replace(ITEMS, src_generation=bytes(16), dst_generation=b"\xff" * 16)
    check_job(msgspec.structs.replace(JOB, kind=JobKind.G2_G1, items=items))


def rows(*pages: int, guards: int | None = None) -> dict[str, object]:
    """Items of which one side is engine memory."""
    return {"index": packed(4, *pages), "generation": bytes(8 * (len(pages) if guards is None else guards))}


@pytest.mark.parametrize("pages_per_row", [1, 3])
def test_items_in_engine_memory_have_a_row_of_pages(pages_per_row: int) -> None:
    side = rows(*range(2 * pages_per_row))
    into = msgspec.structs.replace(ITEMS, dst_index=side["index"], dst_generation=side["generation"])
    check_job(msgspec.structs.replace(JOB, kind=JobKind.G2_G1, items=into))
    out_of = msgspec.structs.replace(ITEMS, src_index=side["index"], src_generation=side["generation"])
    check_job(msgspec.structs.replace(JOB, kind=JobKind.G1_G2, items=out_of))


@pytest.mark.parametrize(
    "side",
    [
        rows(),
        rows(1),
        rows(1, 2, 3),
        rows(1, 2, 3, 4, guards=3),
        rows(1, 2, guards=4),
        rows(*range(2 * MAX_PAGES_PER_CALL)),
    ],
    ids=["none", "half a row", "torn rows", "a guard less", "guards more", "too many"],
)
@pytest.mark.parametrize(("kind", "name"), [(JobKind.G1_G2, "src"), (JobKind.G2_G1, "dst")])
def test_rows_that_do_not_fit_the_items_are_refused(kind: JobKind, name: str, side: dict[str, object]) -> None:
    items = msgspec.structs.replace(ITEMS, **{f"{name}_{column}": value for column, value in side.items()})
    with pytest.raises(RequestError, match=name):
        check_job(msgspec.structs.replace(JOB, kind=kind, items=items))


def test_a_row_may_be_loaded_in_part_but_is_stored_whole() -> None:
    gaps = rows(NO_PAGE, NO_PAGE, 4, NO_PAGE)
    into = msgspec.structs.replace(ITEMS, dst_index=gaps["index"], dst_generation=gaps["generation"])
    check_job(msgspec.structs.replace(JOB, kind=JobKind.G2_G1, items=into))
    out_of = msgspec.structs.replace(ITEMS, src_index=gaps["index"], src_generation=gaps["generation"])
    with pytest.raises(RequestError, match="whole"):
        check_job(msgspec.structs.replace(JOB, kind=JobKind.G1_G2, items=out_of))


def test_a_page_is_written_once_by_a_job() -> None:
    twice = rows(1, 2, 2, 3)
    items = msgspec.structs.replace(ITEMS, dst_index=twice["index"], dst_generation=twice["generation"])
    with pytest.raises(RequestError, match="twice"):
        check_job(msgspec.structs.replace(JOB, kind=JobKind.G2_G1, items=items))


@pytest.mark.parametrize(("kind", "column"), [(JobKind.SEAL, "dst_index"), (JobKind.CHECK, "src_index")])
def test_jobs_on_slots_of_ranks_name_the_slots(kind: JobKind, column: str) -> None:
    check_job(msgspec.structs.replace(JOB, kind=kind))
    with pytest.raises(RequestError, match=column):
        check_job(msgspec.structs.replace(JOB, kind=kind, items=msgspec.structs.replace(ITEMS, **{column: b""})))


def test_destinations_are_numbers() -> None:
    assert destination_slots(JOB) == {7, 8}
    assert list(destination_generations(JOB)) == [3, 1 << 40]


def test_permission_is_given_in_the_thread_that_issues() -> None:
    clock = FakeClock()
    ledger: JobLedger[Job] = JobLedger(Epoch(50), clock)
    ledger.attach("node", Epoch(9), incumbent_connected=False)
    ticket = ticket_of(JOB)
    assert (ticket.job, ticket.worker_epoch, ticket.items) == (JobId(Epoch(9), JobSeq(1)), Epoch(50), 2)
    ledger.submit(ticket, 1)
    ledger.start()
    control = LedgerControl(ledger, ticket, clock)
    first_asked, taken_over = threading.Event(), threading.Event()
    answers: list[ItemStatus] = []

    def issue() -> None:
        answers.append(control.may_issue(0, Generation(2)))
        first_asked.set()
        taken_over.wait(5.0)
        answers.append(control.may_issue(1, Generation(2)))

    thread = threading.Thread(target=issue)
    thread.start()
    assert first_asked.wait(5.0)
    ledger.attach("node", Epoch(10), incumbent_connected=True)
    taken_over.set()
    thread.join(5.0)

    assert answers == [ItemStatus.OK, ItemStatus.SKIPPED]
    assert control.cancelled
