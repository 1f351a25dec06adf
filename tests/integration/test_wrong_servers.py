"""Real services with wrong addresses, accounts and buckets: each says which setting to correct, and never a secret."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from pydantic import BaseModel, SecretStr

from blockyard.cli.embedded.nats import NatsServer
from blockyard.cli.embedded.seaweedfs import SeaweedfsServer
from blockyard.cli.embedded.valkey import ValkeyServer
from blockyard.cli.run_folder import RunFolder
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import G4Section, NatsSection, NodeSection, NodeSettings
from blockyard.testing.remote_process import RemoteServers, empty_index, remote_settings
from blockyard.testing.service_process import START_SECONDS, ServiceProcess
from blockyard.tiers.bucket_admin import S3BucketAdmin
from blockyard.tiers.object_store import StoreCredentials, StoreEndpoint

PASSWORD = "hush-password"
WRONG = "hush-wrong"


class LockedValkey(ValkeyServer):
    """Wants a password."""

    def command(self) -> tuple[str, ...]:
        return (*super().command(), "--requirepass", PASSWORD)

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.ports[0]), timeout=0.5) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"-NOAUTH")
        except OSError:
            return False


class LockedNats(NatsServer):
    """Wants user and password."""

    def command(self) -> tuple[str, ...]:
        command = super().command()
        with (self.data_folder / command[-1]).open("a") as file:
            file.write(f'authorization {{ user: "blockyard", password: "{PASSWORD}" }}\n')
        return command


class PlainNats(NatsServer):
    """Has no JetStream."""

    def command(self) -> tuple[str, ...]:
        command = super().command()
        file = self.data_folder / command[-1]
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not line.startswith("jetstream")))
        return command


class SharedSeaweedfs(SeaweedfsServer):
    """Has accounts that may do less."""

    def command(self) -> tuple[str, ...]:
        command = super().command()
        file = self.data_folder / "s3.json"
        known = json.loads(file.read_text())
        for name, actions in (("reader", ["Read", "List"]), ("maker", ["Read", "Write", "List"])):
            keys = [{"accessKey": f"{name}key", "secretKey": PASSWORD}]
            known["identities"].append({"name": name, "credentials": keys, "actions": actions})
        file.write_text(json.dumps(known))
        return command


@pytest.fixture(scope="module")
def valkey(run_folder: RunFolder) -> Iterator[ValkeyServer]:
    server = LockedValkey(run_folder, name="valkey-locked")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def store(run_folder: RunFolder) -> Iterator[SeaweedfsServer]:
    server = SharedSeaweedfs(run_folder, name="seaweedfs-shared")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def settings(run_folder: RunFolder, valkey_server: ValkeyServer, store: SeaweedfsServer) -> NodeSettings:
    """Of a remote-tier for which all is well."""
    empty_index(valkey_server.url)
    folder = run_folder.path / f"w{uuid4().hex[:6]}"
    folder.mkdir()
    servers = RemoteServers(
        s3_url=store.url, redis_url=valkey_server.url, access_key=store.access_key, secret_key=store.secret_key
    )
    right = remote_settings(folder, servers, "kv")
    return changed(right, "g4", bucket=f"b{uuid4().hex[:10]}")


def changed(settings: NodeSettings, section: str, **values: object) -> NodeSettings:
    before: BaseModel = getattr(settings, section)
    return settings.model_copy(update={section: before.model_copy(update=values)})


async def said(service: ServiceProcess, check: str, *, named: str, reason: str = "") -> str:
    """Start the service; what a failing check says once it names these settings and reason, in page and log alike."""
    service.start()
    detail = ""
    try:
        async with asyncio.timeout(START_SECONDS), httpx.AsyncClient() as client:
            while not (detail.startswith(f"{named}: ") and reason in detail):
                await asyncio.sleep(0.02)
                if (url := service.folder.read_http()) is not None:
                    page = (await client.get(f"{url}/readyz")).json()
                    detail = next(found["detail"] for found in page["checks"] if found["name"] == check)
    except TimeoutError:
        pytest.fail(f"{check} says {detail!r}, not {named} and {reason!r}; log:\n{service.log}")
    finally:
        service.kill()
    assert f"{named}: " in service.log
    for text in (detail, service.log):
        assert "hush" not in text
    return detail


def remote_tier(settings: NodeSettings) -> ServiceProcess:
    return ServiceProcess(ServiceName.REMOTE_TIER, settings)


# --- object store -----------------------------------------------------------------------------------------------------
def of_another(scheme: str, url: str) -> str:
    return f"{scheme}://{url.split('//')[1].split('/')[0]}"


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("port", "Connection refused"),
        ("host", "not known"),
        ("scheme", "does not speak TLS"),
        ("another server", "is not HTTP"),
    ],
)
async def test_a_wrong_address_of_the_store_is_named(
    case: str, reason: str, settings: NodeSettings, valkey_server: ValkeyServer, store: SeaweedfsServer
) -> None:
    url = {
        "port": "http://127.0.0.1:1",
        "host": "http://no-such-host.invalid:8333",
        "scheme": of_another("https", store.url),
        "another server": of_another("http", valkey_server.url),
    }[case]
    remote = remote_tier(changed(settings, "g4", endpoint_url=url))
    assert url in await said(remote, "s3", named="g4.endpoint_url", reason=reason)


@pytest.mark.parametrize(
    ("access", "secret", "named"),
    [
        ("", "", "g4.access_key, g4.secret_key"),
        ("hushnobody", WRONG, "g4.access_key"),
        ("right", WRONG, "g4.secret_key"),
    ],
)
async def test_a_wrong_or_missing_account_of_the_store_is_named(
    access: str, secret: str, named: str, settings: NodeSettings, store: SeaweedfsServer
) -> None:
    account = {
        "access_key": SecretStr(store.access_key if access == "right" else access),
        "secret_key": SecretStr(secret),
    }
    await said(remote_tier(changed(settings, "g4", **account)), "s3", named=named)


async def test_an_account_that_may_not_make_the_bucket_is_named(settings: NodeSettings) -> None:
    account = {"access_key": SecretStr("makerkey"), "secret_key": SecretStr(PASSWORD)}
    remote = remote_tier(changed(settings, "g4", **account))
    await said(remote, "s3", named="g4.bucket, g4.access_key", reason="may not make a bucket")


async def test_an_account_that_may_not_write_is_named(settings: NodeSettings, store: SeaweedfsServer) -> None:
    place = StoreEndpoint(
        url=store.url, region="us-east-1", bucket=settings.g4.bucket, timeout_seconds=10, max_requests=1
    )
    owner = StoreCredentials(access_key=store.access_key, secret_key=store.secret_key)
    await S3BucketAdmin(place, owner).ensure_bucket()
    account = {"access_key": SecretStr("readerkey"), "secret_key": SecretStr(PASSWORD)}
    remote = remote_tier(changed(settings, "g4", **account))
    await said(remote, "s3", named="g4.bucket, g4.access_key", reason="may not write")


# --- index ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("port", "Connect call failed"),
        ("host", "not known"),
        ("database", "out of range"),
        ("scheme", "does not answer in time"),
        ("another server", "Protocol error"),
        ("no password", "wants a password, and none is given"),
        ("wrong password", "refuses this user or password"),
    ],
)
async def test_a_wrong_address_or_password_of_the_index_is_named(
    case: str,
    reason: str,
    settings: NodeSettings,
    valkey: ValkeyServer,
    valkey_server: ValkeyServer,
    store: SeaweedfsServer,
) -> None:
    url = {
        "port": "redis://127.0.0.1:1/0",
        "host": "redis://no-such-host.invalid:6379/0",
        "database": f"{valkey_server.url.rsplit('/', 1)[0]}/999",
        "scheme": of_another("rediss", valkey_server.url),
        "another server": of_another("redis", store.url),
        "no password": valkey.url,
        "wrong password": valkey.url.replace("//", f"//:{WRONG}@"),
    }[case]
    remote = remote_tier(changed(settings, "redis", url=SecretStr(url)))
    await said(remote, "redis", named="redis.url", reason=reason)


async def test_with_the_right_password_all_is_well(settings: NodeSettings, valkey: ValkeyServer) -> None:
    url = SecretStr(valkey.url.replace("//", f"//:{PASSWORD}@"))
    remote = remote_tier(changed(changed(settings, "redis", url=url), "g4", standalone=True))
    try:
        remote.start()
        async with asyncio.timeout(START_SECONDS):
            while remote.folder.read_http() is None or (await remote.page("/readyz")).status_code != httpx.codes.OK:
                await asyncio.sleep(0.02)
    finally:
        remote.kill()


# --- event bus --------------------------------------------------------------------------------------------------------
def manager(folder: Path, url: str) -> ServiceProcess:
    return ServiceProcess(
        ServiceName.BLOCK_MANAGER,
        NodeSettings(
            node=NodeSection(folder=folder),
            g4=G4Section(enabled=False),
            nats=NatsSection(url=SecretStr(url), timeout_seconds=0.5),
        ),
    )


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("port", "cannot connect to 127.0.0.1:1"),
        ("host", "not known"),
        ("scheme", "offers no TLS"),
        ("another server", "does not answer in time"),
    ],
)
async def test_a_wrong_address_of_the_bus_is_named(
    case: str,
    reason: str,
    settings: NodeSettings,
    nats_server: NatsServer,
    valkey_server: ValkeyServer,
) -> None:
    url = {
        "port": "nats://127.0.0.1:1",
        "host": "nats://no-such-host.invalid:4222",
        "scheme": of_another("tls", nats_server.url).replace("//", f"//user:{WRONG}@"),
        "another server": of_another("nats", valkey_server.url),
    }[case]
    detail = await said(manager(settings.node.folder, url), "nats", named="nats.url", reason=reason)
    assert "local tiers go on" in detail


@pytest.mark.parametrize(
    ("account", "reason"),
    [("", "wants an account, and none is given"), (f"blockyard:{WRONG}@", "refuses this user or password")],
)
async def test_a_wrong_or_missing_account_of_the_bus_is_named(
    account: str, reason: str, settings: NodeSettings, run_folder: RunFolder
) -> None:
    server = LockedNats(run_folder, name=f"nats-locked-{uuid4().hex[:4]}")
    server.start()
    try:
        url = server.url.replace("//", f"//{account}")
        await said(manager(settings.node.folder, url), "nats", named="nats.url", reason=reason)
    finally:
        server.kill()


async def test_a_server_without_streams_is_named(settings: NodeSettings, run_folder: RunFolder) -> None:
    server = PlainNats(run_folder, name=f"nats-plain-{uuid4().hex[:4]}")
    server.start()
    try:
        await said(manager(settings.node.folder, server.url), "node-lease", named="nats.url", reason="JetStream")
    finally:
        server.kill()
