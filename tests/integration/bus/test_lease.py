"""Leases of node names on a real NATS server, with outages."""

import asyncio
import shutil

import pytest
from structlog.testing import capture_logs

from blockyard.cli.embedded.nats import NatsServer
from blockyard.core.clock import BootClock
from blockyard.core.errors import (
    UnavailableError,
)
from blockyard.core.name_lease import LeaseState
from blockyard.runtime.bus import Bus
from blockyard.runtime.bus_values import BucketSpec, BusState
from blockyard.runtime.lease import InstanceLease, list_instances
from blockyard.runtime.settings import NatsSection
from blockyard.testing.bus_kit import WAIT_SECONDS, becomes, read_until
from blockyard.wire.events import InstanceRecord

# --- leases -------------------------------------------------------------------------------------------------------
KEY = "default.node-a"


def record(*, folder: str = "f1", epoch: int = 5, engines: tuple[str, ...] = ()) -> InstanceRecord:
    return InstanceRecord(instance="node-a", folder=folder, epoch=epoch, api_url="http://127.0.0.1:1", engines=engines)


class Holder:
    """A lease with its task, and the states it went through."""

    def __init__(self, bus: Bus, section: NatsSection, mine: InstanceRecord) -> None:
        self.states: list[LeaseState] = []
        self.details: list[str] = []
        self._changed = asyncio.Event()
        self.lease = InstanceLease(bus, section, KEY, mine, BootClock())
        self.lease.on_change = self._note

    def _note(self, state: LeaseState, detail: str) -> None:
        self.states.append(state)
        self.details.append(detail)
        self._changed.set()

    async def becomes(self, state: LeaseState) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while self.lease.state is not state:
                self._changed.clear()
                await self._changed.wait()

    async def __aenter__(self) -> "Holder":
        self._task = asyncio.create_task(self.lease.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


async def test_a_lease_is_seen_by_others_and_outlives_its_time_to_live(bus: Bus, section: NatsSection) -> None:
    async with Holder(bus, section, record()) as holder:
        await holder.becomes(LeaseState.HELD)
        first = await bus.read_record(BucketSpec(name="instances", ttl_seconds=1.0), KEY)
        await read_until(
            lambda: bus.read_record(BucketSpec(name="instances", ttl_seconds=1.0), KEY),
            lambda found: found.revision >= first.revision + 6,
        )
        assert await list_instances(bus, section) == (record(),)
        assert holder.states == [LeaseState.HELD]


async def test_a_changed_record_is_written_at_once(bus: Bus, section: NatsSection) -> None:
    slow = section.model_copy(update={"lease_tick_seconds": 60.0})
    async with Holder(bus, slow, record()) as holder:
        await holder.becomes(LeaseState.HELD)
        holder.lease.update(record(engines=("e1",)))
        await read_until(
            lambda: list_instances(bus, section), lambda found: [item.engines for item in found] == [("e1",)]
        )


async def test_a_released_name_is_free_at_once(bus: Bus, section: NatsSection) -> None:
    async with Holder(bus, section, record()) as holder:
        await holder.becomes(LeaseState.HELD)
    await holder.lease.release()
    assert await list_instances(bus, section) == ()
    async with Holder(bus, section, record(folder="f2")) as other:
        await other.becomes(LeaseState.HELD)


async def test_a_name_held_by_another_folder_is_taken_over_only_after_it_expired(
    bus: Bus, section: NatsSection
) -> None:
    async with Holder(bus, section, record()) as holder:
        await holder.becomes(LeaseState.HELD)
        async with Holder(bus, section, record(folder="f2", epoch=9)) as other:
            await other.becomes(LeaseState.TAKEN)
            assert other.details[-1].startswith("node.name: node-a is held by a node at http://127.0.0.1:1 with ")
            assert "state folder f1; give one of the two another name" in other.details[-1]
            assert [item.folder for item in await list_instances(bus, section)] == ["f1"]
            await holder.__aexit__()
            await other.becomes(LeaseState.HELD)
    assert [item.folder for item in await list_instances(bus, section)] == ["f2"]


async def test_a_taken_name_is_one_warning_however_often_it_is_found_taken(bus: Bus, section: NatsSection) -> None:
    spec = BucketSpec(name="instances", ttl_seconds=1.0)
    async with Holder(bus, section, record()) as holder:
        await holder.becomes(LeaseState.HELD)
        with capture_logs() as lines:
            async with Holder(bus, section, record(folder="f2", epoch=9)) as other:
                await other.becomes(LeaseState.TAKEN)
                # A renewal takes as long as a look at the taken name.
                seen = await bus.read_record(spec, KEY)
                await read_until(lambda: bus.read_record(spec, KEY), lambda found: found.revision >= seen.revision + 3)
        (warning,) = [line for line in lines if line["log_level"] == "warning"]
        assert "held by a node at http://127.0.0.1:1" in warning["detail"]


async def test_a_later_life_replaces_the_record_of_an_earlier_one(bus: Bus, section: NatsSection) -> None:
    async with Holder(bus, section, record(epoch=5)) as earlier:
        await earlier.becomes(LeaseState.HELD)
    async with Holder(bus, section, record(epoch=6)) as later:
        await later.becomes(LeaseState.HELD)
        assert [item.epoch for item in await list_instances(bus, section)] == [6]


async def test_a_life_that_finds_a_later_one_of_its_folder_is_fenced(bus: Bus, section: NatsSection) -> None:
    async with Holder(bus, section, record(epoch=6)) as later:
        await later.becomes(LeaseState.HELD)
        async with Holder(bus, section, record(epoch=5)) as earlier:
            await earlier.becomes(LeaseState.FENCED)
        assert [item.epoch for item in await list_instances(bus, section)] == [6]


@pytest.mark.parametrize("forgets", [False, True], ids=["server keeps its data", "server comes back empty"])
async def test_after_an_outage_the_lease_is_made_again_with_the_same_epoch(
    bus: Bus, server: NatsServer, section: NatsSection, forgets: bool
) -> None:
    async with Holder(bus, section, record()) as holder:
        await holder.becomes(LeaseState.HELD)
        server.kill()
        await holder.becomes(LeaseState.AWAY)
        if forgets:
            shutil.rmtree(server.data_folder / "jetstream")
        server.start()
        await holder.becomes(LeaseState.HELD)
        assert await list_instances(bus, section) == (record(),)
        assert holder.states == [LeaseState.HELD, LeaseState.AWAY, LeaseState.HELD]


async def test_a_record_that_cannot_be_read_blocks_the_name_and_is_not_listed(bus: Bus, section: NatsSection) -> None:
    bucket = BucketSpec(name="instances", ttl_seconds=1.0)
    await bus.write_record(bucket, KEY, b"not json", 0)
    assert await list_instances(bus, section) == ()
    async with Holder(bus, section, record()) as holder:
        await holder.becomes(LeaseState.TAKEN)
        await holder.becomes(LeaseState.HELD)


async def test_listing_while_the_server_is_away_is_unavailable_never_empty(
    bus: Bus, server: NatsServer, section: NatsSection
) -> None:
    server.kill()
    await becomes(bus, BusState.AWAY)
    with pytest.raises(UnavailableError):
        await list_instances(bus, section)
