"""The task that keeps a node's lease on its name, and the list of nodes that hold one.

``core.name_lease`` decides what is read and written, and when the node may speak for its name; this carries it to the
server and tells about changes. The lease is news for others: losing it stops nobody from serving local tiers.
Threading: one event loop, no other thread.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from blockyard.core.clock import Clock
from blockyard.core.errors import RevisionConflictError, UnavailableError
from blockyard.core.name_lease import LeaseState, LeaseStep, NameHolder, NameLease, NextLeaseStep, WriteRecord
from blockyard.core.vocabulary import Epoch
from blockyard.runtime.backoff import Backoff
from blockyard.runtime.bus import Bus
from blockyard.runtime.bus_values import BucketSpec, BusState
from blockyard.runtime.logs import get_logger
from blockyard.runtime.settings import NatsSection
from blockyard.wire.events import InstanceRecord
from blockyard.wire.subjects import INSTANCE_BUCKET

LeaseListener = Callable[[LeaseState, str], None]
"""Told the new state and, where useful, who stands in the way."""
_RETRY_SECONDS: Final = 0.2
_log: Final = get_logger(__name__)
_decoder: Final = msgspec.json.Decoder(InstanceRecord)


class InstanceLease:
    """Keeps the record of one node alive; ``run`` is its task."""

    def __init__(
        self,
        bus: Bus,
        section: NatsSection,
        key: str,
        record: InstanceRecord,
        clock: Clock,
    ) -> None:
        """Prepare.

        Args:
            bus: connection, entered by the owner.
            section: how long a lease lives and how often it is renewed.
            key: key of the node (see ``wire.subjects.instance_key``).
            record: what others shall see.
            clock: source of monotonic time, which goes on while the machine sleeps.
        """
        self._bus = bus
        self._bucket = instance_bucket(section)
        self._tick_seconds = section.lease_tick_seconds
        self._key = key
        self._record = record
        self.on_change: LeaseListener = lambda state, detail: None
        self._lease = NameLease(record.folder, Epoch(record.epoch), clock, ttl_seconds=section.lease_ttl_seconds)
        self._told = (LeaseState.PENDING, "")
        self._wake = asyncio.Event()
        self._retry = Backoff(min(_RETRY_SECONDS, self._tick_seconds), self._tick_seconds)
        bus.listen(self._bus_changed)

    @property
    def state(self) -> LeaseState:
        """State as of the last attempt."""
        return self._lease.state

    @property
    def may_speak(self) -> bool:
        """Whether messages may go out in the name of the node."""
        return self._lease.may_speak

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
            if self.state is LeaseState.FENCED:
                return
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def release(self) -> None:
        """Give the name back, if it is held and the server is there; call after ``run`` was cancelled."""
        revision = self._lease.revision
        if revision is None:
            return
        self._lease.given_up()
        try:
            await self._bus.delete_record(self._bucket, self._key, revision)
        except (UnavailableError, RevisionConflictError) as error:
            _log.info("lease not given back; it expires", key=self._key, reason=str(error))
        self._tell()

    # --- inside -------------------------------------------------------------------------------------------------
    async def _attempt(self) -> float:
        """Renew or claim; returns how long to wait for the next attempt."""
        try:
            await self._carry_out(self._lease.next_step())
        except RevisionConflictError:
            return self._retry.next_seconds()
        except UnavailableError as error:
            self._lease.away()
            self._tell(error.detail)
            return self._retry.next_seconds()
        self._retry.reset()
        return self._tick_seconds

    async def _carry_out(self, step: NextLeaseStep) -> None:
        try:
            if isinstance(step, WriteRecord):
                await self._write(step)
                return
        except RevisionConflictError:
            step = self._lease.refused()
        if step is LeaseStep.READ:
            await self._claim()

    async def _claim(self) -> None:
        found = await self._bus.read_record(self._bucket, self._key)
        record = _parse(found.value) if found.value is not None else None
        holder = None if found.value is None else _holder(record)
        step = self._lease.found(holder, found.revision)
        if isinstance(step, WriteRecord):
            await self._write(step)
        elif self.state is LeaseState.FENCED:
            self._tell(f"this state folder is known under epoch {0 if holder is None else holder.epoch}")
        else:
            self._tell(self._taken_by(record))

    async def _write(self, write: WriteRecord) -> None:
        data = msgspec.json.encode(self._record)
        revision = await self._bus.write_record(self._bucket, self._key, data, write.over)
        self._lease.written(write, revision)
        self._tell()

    def _taken_by(self, holder: InstanceRecord | None) -> str:
        who = "a record that cannot be read"
        if holder is not None:
            who = f"a node at {holder.api_url or 'an unknown address'} with state folder {holder.folder}"
        return (
            f"node.name: {self._record.instance} is held by {who}; give one of the two another name "
            "(one that has ended loses it after nats.lease_ttl_seconds)"
        )

    def _bus_changed(self, state: BusState) -> None:
        if state is BusState.CONNECTED:
            self._retry.reset()
            self._wake.set()
        elif state is BusState.AWAY and self.state is LeaseState.HELD:
            self._lease.away()
            self._tell("NATS is away")

    def _tell(self, detail: str = "") -> None:
        if (self.state, detail) == self._told:
            return
        self._told = (self.state, detail)
        level = logging.WARNING if self.state is LeaseState.TAKEN else logging.INFO
        _log.log(level, "lease changed", key=self._key, state=self.state.value, detail=detail)
        self.on_change(self.state, detail)


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


def _holder(record: InstanceRecord | None) -> NameHolder:
    return NameHolder(None, Epoch(0)) if record is None else NameHolder(record.folder, Epoch(record.epoch))
