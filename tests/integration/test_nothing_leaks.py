"""Secrets, tokens, tenants and payload are marked; then all that a node says anywhere is searched for the marks."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import SecretStr
from tests.integration.engine_kit import ALL, BLOCK_BYTES, BLOCK_TOKENS, BM, IDENTITY, node_folder, settings
from tests.unit.runtime.span_receiver import SpanReceiver

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.errors import BlockyardError, RequestError
from blockyard.core.hashing import content_run
from blockyard.core.identity import SequenceScope
from blockyard.core.vocabulary import EngineBlockId, EngineId, ItemStatus, RequestId
from blockyard.runtime.settings import LogSection, NatsSection, NodeSettings, RedisSection, TracingSection
from blockyard.testing.running_node import RunningNode, eventually, running_node
from blockyard.wire.trace_parent import new_trace

__all__ = ["node_folder", "settings"]

PASSWORD = f"marked-password-{uuid4().hex}"
TOKENS = tuple(range(3_141_592_653, 3_141_592_653 + 2 * BLOCK_TOKENS))
SCOPE = SequenceScope(tenant=f"marked-tenant-{uuid4().hex}", salt=f"marked-salt-{uuid4().hex}")
PAYLOAD = b"marked-payload-0"
RUN = content_run(IDENTITY.digest(), SCOPE, TOKENS, BLOCK_TOKENS)
BLOCKS = [EngineBlockId(index) for index in range(len(RUN))]


@pytest.fixture
def receiver() -> Iterator[SpanReceiver]:
    with SpanReceiver().receiving() as made:
        yield made


def marked(settings: NodeSettings, receiver: SpanReceiver, *, store_refuses: bool) -> NodeSettings:
    """Passwords everywhere; the index refuses its own, the bus takes any, and the store what the test wants."""
    secret = SecretStr(PASSWORD) if store_refuses else settings.g4.secret_key
    return settings.model_copy(
        update={
            "g4": settings.g4.model_copy(update={"secret_key": secret}),
            "nats": NatsSection(url=with_password(settings.nats.url), timeout_seconds=1.0),
            "redis": RedisSection(url=with_password(settings.redis.url)),
            "log": LogSection(level="debug", json_lines=True),
            "tracing": TracingSection(endpoint_url=receiver.url, sample_ratio=1.0),
        }
    )


def with_password(url: SecretStr) -> SecretStr:
    return SecretStr(url.get_secret_value().replace("://", f"://user:{PASSWORD}@"))


def marks(settings: NodeSettings) -> dict[str, bytes]:
    tenant = SCOPE.tenant_digest()
    shown = repr(bytes(tenant))[2:-1]
    return {
        "password": PASSWORD.encode(),
        "secret of the store": settings.g4.secret_key.get_secret_value().encode(),
        "account of the store": settings.g4.access_key.get_secret_value().encode(),
        "token": str(TOKENS[0]).encode(),
        "token in hex": f"{TOKENS[0]:x}".encode(),
        "payload": PAYLOAD,
        "payload in hex": PAYLOAD.hex().encode(),
        "salt": SCOPE.salt.encode(),
        "tenant": SCOPE.tenant.encode(),
        "digest of the tenant": tenant.hex().encode(),
        "bytes of the tenant": bytes(tenant),
        "shown bytes of the tenant": shown.encode(),
        "shown bytes in JSON": json.dumps(shown)[1:-1].encode(),
        "tenant in base64": base64.b64encode(tenant),
    }


async def use(node: RunningNode) -> None:
    """One engine stores, loads and does what is refused."""
    tenant = SCOPE.tenant_digest()
    with EngineMemory(8, BLOCK_BYTES) as memory:
        description = memory.description(EngineId("one"), IDENTITY)
        async with BlockyardClient(node.engine_socket, description, memory.guards, memory=memory.rank) as client:
            await client.wait_connected(20.0)
            memory.raise_guards(BLOCKS)
            for block in BLOCKS:
                memory.view(block)[:] = list(PAYLOAD * (BLOCK_BYTES // len(PAYLOAD)))
            await client.register(RUN, BLOCKS, tenant=tenant, trace=new_trace())
            await node.holds("g3", len(RUN))
            with pytest.raises(RequestError):
                await client.load(RequestId("r"), RUN, BLOCKS, ttl_seconds=1.0, tenant=tenant)
            memory.raise_guards(BLOCKS)
            await client.deregister(BLOCKS)
            (found,) = await client.lookup(RUN, tenant=tenant, remote_wait_seconds=0.5, trace=new_trace())
            assert all(availability.is_hit for availability in found)
            result = await client.load(RequestId("r"), RUN, BLOCKS, ttl_seconds=5.0, tenant=tenant, trace=new_trace())
            assert result.statuses == (ItemStatus.OK,) * len(RUN)
            for wrong in (b"short", bytes(tenant) * 2):
                with pytest.raises(BlockyardError) as caught:
                    await client.lookup(RUN, tenant=type(tenant)(wrong))
                assert tenant.hex() not in str(caught.value)


async def pages(node: RunningNode) -> dict[str, bytes]:
    """What the services answer, also to requests that quote the marks where they do not belong.

    But for names of fields and settings: an answer that refuses one says which.
    """
    found: dict[str, bytes] = {}
    for service in ALL:
        url = node.folder.service(service).read_http()
        for path in ("/livez", "/readyz", "/startupz", "/metrics", "/no/such/page", f"/v1/{PASSWORD}"):
            answer = await node.http.get(f"{url}{path}", headers={"authorization": f"Bearer {PASSWORD}"})
            found[f"{service}{path[:14]}"] = answer.content
    for path in ("/openapi.json", "/docs", "/v1/tiers", "/v1/engines", "/v1/nodes", "/v1/nodes?password=" + PASSWORD):
        found[path[:14]] = (await node.http.get(f"{node.folder.service(BM).read_http()}{path}")).content
    tenant = SCOPE.tenant_digest().hex()
    for number, body in enumerate(
        (
            {"identity": "00" * 32, "digests": [], "tenant": tenant + "0"},
            {"identity": "00" * 32, "digests": [], "tenant": [tenant]},
            {"identity": PASSWORD, "digests": [SCOPE.salt], "tenant": SCOPE.tenant},
            {"identity": "00" * 32, "digests": [], "token_ids": list(TOKENS), "salt": SCOPE.salt},
            {"digests": list(TOKENS)},
            {"identity": "00" * 32, "digests": ["00" * 32], "tenant": tenant},
            [PASSWORD],
            PASSWORD,
        )
    ):
        found[f"lookup {number}"] = (await node.post("/v1/lookup", body)).content
    found["clear"] = (await node.post(f"/v1/tiers/{PASSWORD}:clear")).content
    return found


async def server_named(node: RunningNode, check: str) -> None:
    async def named() -> bool:
        page = await node.get("/readyz", ALL[2])
        return page is not None and any(item["name"] == check and not item["ok"] for item in page["checks"])

    await eventually(named, f"/readyz names {check}")


@pytest.mark.parametrize("store_refuses", [False, True], ids=["store works", "store refuses"])
async def test_no_mark_is_found_anywhere(settings: NodeSettings, receiver: SpanReceiver, store_refuses: bool) -> None:
    node_settings = marked(settings, receiver, store_refuses=store_refuses)
    async with running_node(node_settings, *ALL) as node:
        await node.ready("redis", "s3", "remote-tier")
        await use(node)
        await server_named(node, "redis")
        said = await pages(node)
        await asyncio.to_thread(receiver.wait_for_deliveries, 3, 10.0)
        await node.stop()
        said |= {file.name: file.read_bytes() for file in sorted(node.folder.path.glob("*.log"))}
    said["spans"] = b"\n".join(receiver.bodies)
    assert {span.name for span in receiver.spans} >= {"lookup", "load", "store", "job", "transfer", "publish"}
    assert min(len(text) for name, text in said.items() if name.endswith(".log")) > 500
    wanted = marks(node_settings)
    assert all(wanted.values())
    assert [(place, name) for place, text in said.items() for name, mark in wanted.items() if mark in text] == []


def test_a_mark_would_be_found(tmp_path: Path) -> None:
    """The search itself: what it looks for is what would be written."""
    tenant = SCOPE.tenant_digest()
    found = marks(NodeSettings())
    assert found["shown bytes of the tenant"] in repr({"tenant": bytes(tenant)}).encode()
    assert found["shown bytes in JSON"] in json.dumps({"tenant": repr(bytes(tenant))}).encode()
    assert found["token"] in str(list(TOKENS)).encode()
