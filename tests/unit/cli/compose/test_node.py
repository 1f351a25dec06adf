"""A node of a compose stack: killed wholly, started again as it was, its disk reached through a container."""

import httpx
import pytest
from tests.unit.cli.compose.conftest import Script

from blockyard.cli.compose import node as node_module
from blockyard.cli.compose.node import ComposeNode
from blockyard.cli.failures import ComposeError
from blockyard.cli.slab_damage import SlabBlock
from blockyard.core.vocabulary import ContentKey, IdentityDigest

SERVICES = ["block-manager-b", "offload-worker-b", "remote-tier-b"]
SLABS = "exec -T offload-worker-b python -m blockyard.cli.slab_damage"
BLOCK = '{"file":"/g3/x.slab","payload_offset":4096,"payload_bytes":8192,"identity":"aWk=","key":"a2s="}'


async def node_b(script: Script, expected: set[str]) -> ComposeNode:
    for service, port in (("block-manager", 8801), ("offload-worker", 8802), ("remote-tier", 8803)):
        script.on(f"port {service}-b {port}", f"127.0.0.1:1{port}", keep=False)
    node = ComposeNode("b", await script.project(), expected)
    await node.find()
    return node


async def test_addresses_are_those_of_services_that_should_run(script: Script) -> None:
    expected = {*SERVICES, "engine-b"}
    node = await node_b(script, expected)
    assert [address.url for address in node.addresses()] == [f"http://127.0.0.1:1880{n}" for n in (1, 2, 3)]
    expected.discard("remote-tier-b")
    assert len(node.addresses()) == 2
    expected.clear()
    assert (node.addresses(), node.running) == ((), False)


async def test_killing_services_leaves_the_engine_and_returns_when_they_are_gone(script: Script) -> None:
    expected = {*SERVICES, "engine-b", "nats"}
    node = await node_b(script, expected)
    script.on(f"kill --signal KILL {' '.join(SERVICES)}")
    script.containers(["engine-b", "nats", "remote-tier-b"], [], keep=False)
    script.containers(["engine-b", "nats"], SERVICES)
    await node.kill_services()
    assert expected == {"engine-b", "nats"}
    assert node.running
    assert script.asked()[-3:] == [f"kill --signal KILL {' '.join(SERVICES)}", *["ps --all --format json"] * 2]


async def test_killing_a_node_takes_its_engine_first_and_remembers_its_disk(script: Script) -> None:
    expected = {*SERVICES, "engine-b"}
    node = await node_b(script, expected)
    script.on(f"{SLABS} usage", "12345\n", keep=False)
    script.on(f"kill --signal KILL engine-b {' '.join(SERVICES)}")
    script.containers([], ["engine-b", *SERVICES])
    await node.kill()
    assert (expected, node.running, await node.slab_bytes()) == (set(), False, 12_345)


async def test_what_survives_its_death_is_named(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "_GONE_SECONDS", 0.0)
    node = await node_b(script, {*SERVICES})
    script.on("kill")
    script.containers(["remote-tier-b"], [])
    with pytest.raises(ComposeError, match="still run: remote-tier-b"):
        await node.kill_services()


async def test_a_start_makes_and_pulls_nothing_and_asks_for_the_addresses_again(script: Script) -> None:
    expected = {"engine-b"}
    node = await node_b(script, expected)
    script.on(f"up --detach --no-deps --no-recreate --no-build --pull never {' '.join(SERVICES)}")
    for service in SERVICES:
        script.on(f"port {service}", "127.0.0.1:777")
    await node.start_services()
    assert expected == {"engine-b", *SERVICES}
    assert {address.url for address in node.addresses()} == {"http://127.0.0.1:777"}


async def test_readiness_is_asked_at_the_published_ports(script: Script) -> None:
    node = await node_b(script, {*SERVICES})
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        starting = len(asked) == 1
        return httpx.Response(503 if starting else 200, json={"checks": [{"name": "x", "detail": "y", "ok": False}]})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        await node.wait_ready(http, lambda _: None)
    assert sorted(set(asked)) == [f"http://127.0.0.1:1880{n}/readyz" for n in (1, 2, 3)]
    assert len(asked) == 4


async def test_blocks_on_disk_are_listed_and_damaged_in_the_container(script: Script) -> None:
    node = await node_b(script, {*SERVICES})
    script.on(f"{SLABS} list", f"{BLOCK}\n{BLOCK}\n")
    script.on(f"{SLABS} flip '{BLOCK}'")
    blocks = await node.slab_blocks()
    assert blocks == [SlabBlock("/g3/x.slab", 4_096, 8_192, IdentityDigest(b"ii"), ContentKey(b"kk"))] * 2
    await node.flip_slab_byte(blocks[0])


async def test_what_the_container_writes_instead_of_an_answer_is_named(script: Script) -> None:
    node = await node_b(script, {*SERVICES})
    script.on(SLABS, "a warning\n")
    with pytest.raises(ComposeError, match=r"exec -T offload-worker-b .*slab_damage list wrote something else"):
        await node.slab_blocks()
    with pytest.raises(ComposeError, match=r"slab_damage usage wrote something else .*a warning"):
        await node.slab_bytes()
