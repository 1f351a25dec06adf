"""The bus against a real NATS server, with outages."""

import asyncio
import dataclasses
import shutil
import time

import nats
import pytest
from pydantic import SecretStr

from blockyard.cli.embedded.nats import NatsServer
from blockyard.core.errors import (
    DeadlineExceededError,
    FrameTooLargeError,
    RevisionConflictError,
    UnavailableError,
)
from blockyard.runtime.bus import WINDOW_MESSAGES, Bus
from blockyard.runtime.bus_values import BucketSpec, BusState, OutgoingMessage, PublishOutcome, StreamSpec
from blockyard.runtime.settings import NatsSection
from blockyard.testing.bus_kit import WAIT_SECONDS, becomes, connected_bus, read_until
from blockyard.testing.frozen import frozen
from blockyard.testing.tcp_server import tcp_server
from blockyard.wire.trace_parent import NO_TRACE, TraceParent, new_trace

STREAM = StreamSpec(name="EVENTS", subjects=("events.>",), max_bytes=64 << 20)
BUCKET = BucketSpec(name="records", ttl_seconds=1.0)


def messages(count: int, start: int = 0) -> list[OutgoingMessage]:
    return [
        OutgoingMessage(subject="events.test", message_id=f"i:1:{number}", data=str(number).encode())
        for number in range(start, start + count)
    ]


async def stored(server: NatsServer) -> list[bytes]:
    """What the stream holds, in its order, as another client sees it."""
    client = await nats.connect(server.url)
    try:
        stream = client.jetstream()
        state = (await stream.stream_info(STREAM.name)).state
        found = [await stream.get_msg(STREAM.name, seq=seq) for seq in range(state.first_seq, state.last_seq + 1)]
        return [message.data or b"" for message in found]
    finally:
        await client.close()


# --- connection ---------------------------------------------------------------------------------------------------
async def test_start_does_not_wait_for_a_server_that_is_away(server: NatsServer, section: NatsSection) -> None:
    server.stop()
    began = time.monotonic()
    async with Bus(section, "test") as bus:
        assert bus.state is BusState.CONNECTING
        outcome = await bus.publish_window(messages(3))
        assert outcome.acked == 0
        assert isinstance(outcome.failure, UnavailableError)
        with pytest.raises(UnavailableError, match="away"):
            await bus.ensure_stream(STREAM)
    assert time.monotonic() - began < section.timeout_seconds


async def test_a_server_that_appears_later_is_used(server: NatsServer, section: NatsSection) -> None:
    server.stop()
    async with Bus(section, "test") as bus:
        server.start()
        await becomes(bus, BusState.CONNECTED)
        await bus.ensure_stream(STREAM)
        assert (await bus.publish_window(messages(3))).acked == 3


async def test_an_outage_is_noticed_and_the_connection_comes_back(bus: Bus, server: NatsServer) -> None:
    seen: list[BusState] = []
    bus.listen(seen.append)
    server.kill()
    await becomes(bus, BusState.AWAY)
    server.start()
    await becomes(bus, BusState.CONNECTED)
    assert seen == [BusState.AWAY, BusState.CONNECTED]


async def test_leaving_while_the_server_is_away_is_clean(server: NatsServer, section: NatsSection) -> None:
    async with connected_bus(section) as bus:
        server.kill()
        await becomes(bus, BusState.AWAY)
    assert bus.state is BusState.CLOSED


@pytest.mark.parametrize(
    "greeting", [b"x" * 200_000, b"INFO []\r\n", b"INFO {bad\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"]
)
async def test_what_is_no_nats_server_is_the_same_as_none_and_named_once(
    greeting: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    greeted = asyncio.Semaphore(0)

    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        try:
            await reader.read()
        finally:
            greeted.release()

    async with tcp_server(stranger) as port:
        url = f"nats://127.0.0.1:{port}"
        async with Bus(NatsSection(url=SecretStr(url), timeout_seconds=0.5), "test") as bus:
            for _ in range(3):
                await asyncio.wait_for(greeted.acquire(), WAIT_SECONDS)
            assert bus.state is not BusState.CONNECTED
            with pytest.raises(UnavailableError):
                await bus.list_records(BUCKET)
    assert capsys.readouterr().out.count("NATS refuses") == 1


def test_errors_and_logs_never_show_the_password() -> None:
    section = NatsSection(url=SecretStr("nats://user:hidden@host:4222"))
    assert "hidden" not in repr(section)
    assert "hidden" not in repr(vars(Bus(section, "test")))


# --- streams ------------------------------------------------------------------------------------------------------
async def test_messages_are_stored_in_order_through_several_windows(bus: Bus, server: NatsServer) -> None:
    await bus.ensure_stream(STREAM)
    count = 2 * WINDOW_MESSAGES + 10
    assert await bus.publish_window(messages(count)) == await bus.publish_window(messages(count))
    assert await stored(server) == [message.data for message in messages(count)]


async def test_a_changed_limit_is_applied_to_an_existing_stream(bus: Bus, section: NatsSection) -> None:
    await bus.ensure_stream(STREAM)
    smaller = StreamSpec(name=STREAM.name, subjects=STREAM.subjects, max_bytes=1 << 20)
    async with connected_bus(section) as other:
        await other.ensure_stream(smaller)
        assert (await other.publish_window(messages(1))).failure is None


async def test_a_message_larger_than_the_server_takes_is_named_as_such(bus: Bus) -> None:
    await bus.ensure_stream(STREAM)
    large = OutgoingMessage(subject="events.test", message_id="large", data=bytes(9 << 20))
    outcome = await bus.publish_window([*messages(2), large, *messages(2, start=2)])
    assert outcome.acked == 2
    assert isinstance(outcome.failure, FrameTooLargeError)


@pytest.mark.parametrize("trace", [NO_TRACE, new_trace()], ids=["untraced", "traced"])
async def test_the_largest_message_that_is_let_through_is_taken_with_its_headers(bus: Bus, trace: TraceParent) -> None:
    """The server ends the connection of a client that sends more."""
    await bus.ensure_stream(STREAM)
    empty = OutgoingMessage(subject="events.test", message_id="m" * 64, data=b"", trace=trace)
    limit = (await bus.publish_window([dataclasses.replace(empty, data=bytes(9 << 20))])).failure
    assert limit is not None
    room = int(limit.fields["limit"]) - empty.sent_bytes
    assert (await bus.publish_window([dataclasses.replace(empty, data=bytes(room))])) == PublishOutcome(1)
    over = await bus.publish_window([dataclasses.replace(empty, data=bytes(room + 1))])
    assert isinstance(over.failure, FrameTooLargeError)
    assert bus.state is BusState.CONNECTED


async def test_a_killed_server_loses_and_doubles_nothing_with_resending(bus: Bus, server: NatsServer) -> None:
    await bus.ensure_stream(STREAM)
    total = 3_000
    acked = 0
    killed = False
    async with asyncio.timeout(WAIT_SECONDS):
        while acked < total:
            if acked >= total // 3 and not killed:
                killed = True
                publishing = asyncio.create_task(bus.publish_window(messages(total - acked, start=acked)))
                await asyncio.sleep(0)
                server.kill()
                server.start()
                outcome = await publishing
            else:
                outcome = await bus.publish_window(messages(min(500, total - acked), start=acked))
            acked += outcome.acked
            if outcome.failure is not None:
                await becomes(bus, BusState.CONNECTED)
                await bus.ensure_stream(STREAM)
    found = await stored(server)
    assert killed
    assert sorted(found, key=int) == [message.data for message in messages(total)]


async def test_a_frozen_server_costs_one_timeout_and_no_more(bus: Bus, server: NatsServer) -> None:
    await bus.ensure_stream(STREAM)
    with frozen(server.pid):
        began = time.monotonic()
        outcome = await bus.publish_window(messages(10))
        assert outcome.acked == 0
        assert isinstance(outcome.failure, DeadlineExceededError)
        assert time.monotonic() - began < 5.0, "one second, and not one for each message"
    assert (await bus.publish_window(messages(10))).acked == 10
    assert await stored(server) == [message.data for message in messages(10)]


async def test_a_server_that_came_back_empty_gets_its_stream_again(bus: Bus, server: NatsServer) -> None:
    await bus.ensure_stream(STREAM)
    await restart_empty(bus, server)
    outcome = await bus.publish_window(messages(5))
    assert outcome.acked == 0
    assert isinstance(outcome.failure, UnavailableError)
    await bus.ensure_stream(STREAM)
    assert (await bus.publish_window(messages(5))).acked == 5


async def restart_empty(bus: Bus, server: NatsServer) -> None:
    server.kill()
    await becomes(bus, BusState.AWAY)
    shutil.rmtree(server.data_folder / "jetstream")
    server.start()
    await becomes(bus, BusState.CONNECTED)


# --- records ------------------------------------------------------------------------------------------------------
async def test_records_are_written_only_over_the_revision_named(bus: Bus) -> None:
    assert await bus.read_record(BUCKET, "a") == await bus.read_record(BUCKET, "a")
    first = await bus.write_record(BUCKET, "a", b"1", 0)
    with pytest.raises(RevisionConflictError):
        await bus.write_record(BUCKET, "a", b"2", 0)
    second = await bus.write_record(BUCKET, "a", b"2", first)
    with pytest.raises(RevisionConflictError):
        await bus.delete_record(BUCKET, "a", first)
    await bus.delete_record(BUCKET, "a", second)
    gone = await bus.read_record(BUCKET, "a")
    assert gone.value is None
    await bus.write_record(BUCKET, "a", b"3", gone.revision)
    assert [record.value for record in await bus.list_records(BUCKET)] == [b"3"]


async def test_an_expired_record_reads_as_none_and_can_be_written_again(bus: Bus) -> None:
    await bus.write_record(BUCKET, "a", b"1", 0)
    record = await read_until(lambda: bus.read_record(BUCKET, "a"), lambda found: found.value is None)
    assert await bus.list_records(BUCKET) == ()
    await bus.write_record(BUCKET, "a", b"2", record.revision)
    assert (await bus.read_record(BUCKET, "a")).value == b"2"


async def test_a_bucket_made_with_other_settings_is_used_as_it_is(bus: Bus, section: NatsSection) -> None:
    await bus.write_record(BUCKET, "a", b"1", 0)
    async with connected_bus(section) as other:
        record = await other.read_record(BucketSpec(name=BUCKET.name, ttl_seconds=60.0), "a")
        assert record.value == b"1"
