"""The lease by which a node owns its name, and the list of nodes that hold one.

::

            ┌──────── server away ────────► AWAY ──── back ───┐
    PENDING ┴─ no record, or own older one ─► HELD ◄──────────┤
            └─ live record of another folder ─► TAKEN ─ it expires ─┘      own folder, higher epoch ─► FENCED (for good)

Invariants: a record is written only over the revision that was read, so two nodes never both hold a name; a lease lost
because the server was away or forgot it is made again with the same epoch. The lease is news for others: losing it
stops nobody from serving local tiers.
Threading: one event loop, no other thread.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum, unique
from typing import Final

import msgspec

from blockyard.core.errors import RevisionConflictError, UnavailableError
from blockyard.runtime.backoff import Backoff
from blockyard.runtime.bus import Bus
from blockyard.runtime.bus_values import BucketSpec, BusState
from blockyard.runtime.logs import get_logger
from blockyard.runtime.settings import NatsSection
from blockyard.wire.events import InstanceRecord
from blockyard.wire.subjects import INSTANCE_BUCKET

_RETRY_SECONDS: Final = 0.2
_log: Final = get_logger(__name__)
_decoder: Final = msgspec.json.Decoder(InstanceRecord)


@unique
class LeaseState(StrEnum):
    """Who owns the name."""

    PENDING = "pending"
    HELD = "held"
    AWAY = "away"
    TAKEN = "taken"
    """Another state folder holds a live record under this name."""
    FENCED = "fenced"
    """This state folder has a record of a later life: this one must take a higher epoch or end."""


class InstanceLease:
    """Keeps the record of one node alive; ``run`` is its task."""

    def __init__(
        self,
        bus: Bus,
        section: NatsSection,
        key: str,
        record: InstanceRecord,
        on_change: Callable[[LeaseState, str], None] | None = None,
    ) -> None:
        """Prepare.

        Args:
            bus: connection, entered by the owner.
            section: how long a lease lives and how often it is renewed.
            key: key of the node (see ``wire.subjects.instance_key``).
            record: what others shall see.
            on_change: called with the new state and, where useful, who stands in the way.
        """
        self._bus = bus
        self._bucket = instance_bucket(section)
        self._tick_seconds = section.lease_tick_seconds
        self._key = key
        self._record = record
        self._on_change = on_change
        self._state = LeaseState.PENDING
        self._detail = ""
        self._revision: int | None = None
        self._wake = asyncio.Event()
        self._retry = Backoff(min(_RETRY_SECONDS, self._tick_seconds), self._tick_seconds)
        bus.listen(self._bus_changed)

    @property
    def state(self) -> LeaseState:
        """State as of the last attempt."""
        return self._state

    @property
    def record(self) -> InstanceRecord:
        """What others see, or will see at the next attempt."""
        return self._record

    def update(self, record: InstanceRecord) -> None:
        """Replace the record; written at once if the server is there."""
        self._record = record
        self._wake.set()

    async def run(self) -> None:
        """Keep the lease until cancelled; returns only when fenced."""
        while True:
            self._wake.clear()
            wait_seconds = await self._attempt()
            if self._state is LeaseState.FENCED:
                return
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def release(self) -> None:
        """Give the name back, if it is held and the server is there; call after ``run`` was cancelled."""
        revision, self._revision = self._revision, None
        if revision is None:
            return
        try:
            await self._bus.delete_record(self._bucket, self._key, revision)
        except (UnavailableError, RevisionConflictError) as error:
            _log.info("lease not given back; it expires", key=self._key, reason=str(error))
        self._change(LeaseState.PENDING)

    # --- inside -------------------------------------------------------------------------------------------------
    async def _attempt(self) -> float:
        """Renew or claim; returns how long to wait for the next attempt."""
        try:
            try:
                if self._revision is not None:
                    await self._write(self._revision)
                else:
                    await self._claim()
            except RevisionConflictError:
                # Expired, forgotten by a server that came back empty, or written by somebody else: look.
                self._revision = None
                await self._claim()
        except RevisionConflictError:
            return self._retry.next_seconds()
        except UnavailableError as error:
            self._change(LeaseState.AWAY, error.detail)
            return self._retry.next_seconds()
        self._retry.reset()
        return self._tick_seconds

    async def _claim(self) -> None:
        found = await self._bus.read_record(self._bucket, self._key)
        holder = _parse(found.value) if found.value is not None else None
        if found.value is None or (holder is not None and self._is_ours(holder)):
            await self._write(found.revision)
        elif holder is not None and holder.folder == self._record.folder:
            self._change(LeaseState.FENCED, f"this state folder is known under epoch {holder.epoch}")
        else:
            self._change(LeaseState.TAKEN, self._taken_by(holder))

    async def _write(self, last_revision: int) -> None:
        data = msgspec.json.encode(self._record)
        self._revision = await self._bus.write_record(self._bucket, self._key, data, last_revision)
        self._change(LeaseState.HELD)

    def _taken_by(self, holder: InstanceRecord | None) -> str:
        who = "a record that cannot be read"
        if holder is not None:
            who = f"a node at {holder.api_url or 'an unknown address'} with state folder {holder.folder}"
        return (
            f"node.name: {self._record.instance} is held by {who}; give one of the two another name "
            "(one that has ended loses it after nats.lease_ttl_seconds)"
        )

    def _is_ours(self, holder: InstanceRecord) -> bool:
        return holder.folder == self._record.folder and holder.epoch <= self._record.epoch

    def _bus_changed(self, state: BusState) -> None:
        if state is BusState.CONNECTED:
            self._retry.reset()
            self._wake.set()
        elif state is BusState.AWAY and self._state is LeaseState.HELD:
            self._change(LeaseState.AWAY, "NATS is away")

    def _change(self, state: LeaseState, detail: str = "") -> None:
        if (state, detail) == (self._state, self._detail):
            return
        self._state, self._detail = state, detail
        level = logging.WARNING if state is LeaseState.TAKEN else logging.INFO
        _log.log(level, "lease changed", key=self._key, state=state.value, detail=detail)
        if self._on_change is not None:
            self._on_change(state, detail)


def instance_bucket(section: NatsSection) -> BucketSpec:
    """Bucket of the nodes' records, whose time to live is that of a lease."""
    return BucketSpec(name=INSTANCE_BUCKET, ttl_seconds=section.lease_ttl_seconds)


async def list_instances(bus: Bus, section: NatsSection) -> tuple[InstanceRecord, ...]:
    """Nodes whose lease is alive, by key; records that cannot be read are left out.

    Raises:
        UnavailableError: the server is away, or refuses.
    """
    records = await bus.list_records(instance_bucket(section))
    parsed = (_parse(record.value) for record in records if record.value is not None)
    return tuple(record for record in parsed if record is not None)


def _parse(data: bytes) -> InstanceRecord | None:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
