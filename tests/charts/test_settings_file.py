"""The settings that services get are those of the values, and the memory of the containers follows from them."""

import re
from pathlib import Path

import pytest
from tests.charts.chart_cases import BUNDLED, CASES, EXTERNAL, NO_DISK, PASSWORDS, SIDECAR, STANDALONE
from tests.charts.chart_kit import SERVICES, Manifest, PodTemplate, Rendered, Values, helm, merged, render
from tests.charts.container_process import Machine, container_process

from blockyard.core.vocabulary import Tier
from blockyard.runtime.setting_values import shown_size
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.settings_source import load_settings
from blockyard.tiers.arena import ArenaGeometry
from blockyard.tiers.g3_slab.layout import SlabGeometry

FIELDS = {"spec.nodeName": "worker-1.example.com", "metadata.name": "demo-node-0", "status.podIP": "10.0.0.7"}
SECRETS = {
    ("nats-address", "url"): "nats://blockyard:secret@nats.internal:4222",
    ("redis-address", "address"): "redis://:secret@redis.internal:6379/0",
    ("nats-account", "user"): "blockyard",
    ("nats-account", "password"): "secret",
    ("redis-account", "password"): "secret",
    ("blockyard-nats", "url"): "nats://nats.internal:4222",
    ("blockyard-redis", "url"): "redis://redis.internal:6379/0",
    **{(name, key): "account" for name in ("s3-account", "blockyard-s3") for key in ("access-key", "secret-key")},
    ("s3", "user"): "account",
    ("s3", "password"): "secret",
}
MIB = 1 << 20


def settings_of(rendered: Rendered, pod: PodTemplate, service: str, folder: Path) -> NodeSettings:
    machine = Machine(fields=FIELDS, secrets=SECRETS, root=folder)
    return load_settings(container_process(rendered, pod, service, machine, image=service).environment)


def bytes_of(quantity: str) -> int:
    found = re.fullmatch(r"(\d+)(Mi|Gi)", quantity)
    assert found is not None
    return int(found.group(1)) * {"Mi": MIB, "Gi": 1 << 30}[found.group(2)]


def memory(rendered: Rendered, service: str) -> tuple[int, int]:
    """Request and limit."""
    resources = rendered.pod("node").container(service)["resources"]
    return bytes_of(resources["requests"]["memory"]), bytes_of(resources["limits"]["memory"])


# --- settings ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", CASES)
def test_every_service_accepts_its_settings(case: str, tmp_path: Path) -> None:
    rendered = render(CASES[case])
    loaded = 0
    for pod in rendered.pods:
        for container in pod.spec["containers"]:
            if container["name"] in SERVICES:
                settings = settings_of(rendered, pod, container["name"], tmp_path / pod.component)
                name = "spec.nodeName" if pod.owner["kind"] == "DaemonSet" else "metadata.name"
                assert settings.node.name == FIELDS[name]
                assert settings.http.advertised_host == FIELDS["status.podIP"]
                assert settings.g4.standalone == (pod.owner["kind"] == "Deployment")
                port = getattr(settings.http, f"{container['name'].replace('-', '_')}_port")
                assert port == pod.ports[container["name"]]
                loaded += 1
    assert loaded


@pytest.mark.parametrize(
    ("values", "nats", "redis", "s3"),
    [
        (EXTERNAL, "nats://nats.internal:4222", "redis://redis.internal:6380/2", "https://s3.internal"),
        (
            BUNDLED,
            "nats://demo-blockyard-nats:4222",
            "redis://demo-blockyard-redis:6379/0",
            "http://demo-blockyard-s3:8333",
        ),
        (
            merged(BUNDLED, PASSWORDS),
            "nats://blockyard:secret@demo-blockyard-nats:4222",
            "redis://:secret@demo-blockyard-redis:6379/0",
            "http://demo-blockyard-s3:8333",
        ),
        (
            CASES["DaemonSet, secrets"],
            "nats://blockyard:secret@nats.internal:4222",
            "redis://:secret@redis.internal:6379/0",
            "http://s3.internal:9000",
        ),
    ],
    ids=["external", "bundled", "bundled with passwords", "secrets"],
)
def test_services_are_told_their_servers(values: Values, nats: str, redis: str, s3: str, tmp_path: Path) -> None:
    rendered = render(values, STANDALONE)
    manager = settings_of(rendered, rendered.pod("node"), "block-manager", tmp_path)
    assert manager.nats.url.get_secret_value() == nats
    for component in ("node", "remote-tier"):
        remote = settings_of(rendered, rendered.pod(component), "remote-tier", tmp_path)
        assert remote.redis.url.get_secret_value() == redis
        assert remote.g4.endpoint_url == s3
        assert remote.g4.access_key.get_secret_value() == "account"


def test_addresses_lead_to_services_of_the_release() -> None:
    rendered = render(BUNDLED)
    hosts = set(re.findall(r"//([a-z0-9-]+):", rendered.settings_file))
    assert hosts == {f"demo-blockyard-{name}" for name in ("nats", "redis", "s3")}
    assert hosts <= {item["metadata"]["name"] for item in rendered.of_kind("Service")}


@pytest.mark.parametrize(
    ("section", "key", "value", "loaded"),
    [
        # Helm reads numbers as floats, and would write them as 1e+06 and 1.073741824e+09.
        ("g2", "capacity", 1_073_741_824, 1_073_741_824),
        ("node", "block_tokens", 1_000_000, 1_000_000),
        ("redis", "entry_ttl_seconds", 31_536_000, 31_536_000),
        ("g4", "tail_idle_seconds", 0.25, 0.25),
        ("tracing", "sample_ratio", 0.000_01, 0.000_01),
        ("g3", "capacity", "1.5TiB", 3 << 39),
        # Text that YAML would take for something else.
        ("g4", "prefix", "017", "017"),
        ("g4", "prefix", "null", "null"),
        ("g4", "region", "on", "on"),
        ("node", "namespace", "12345", "12345"),
        ("log", "level", "debug", "debug"),
    ],
)
def test_a_setting_arrives_as_it_was_written(
    section: str, key: str, value: object, loaded: object, tmp_path: Path
) -> None:
    rendered = render(EXTERNAL, {"settings": {section: {key: value}}})
    settings = settings_of(rendered, rendered.pod("node"), "block-manager", tmp_path)
    assert getattr(getattr(settings, section), key) == loaded


def test_the_engine_is_told_where_its_node_is(tmp_path: Path) -> None:
    rendered = render(EXTERNAL, SIDECAR, {"settings": {"node": {"block_bytes": "2MiB"}}})
    machine = Machine(fields=FIELDS, secrets={}, root=tmp_path)
    process = container_process(rendered, rendered.pod("node"), "engine", machine, image="demo-engine")
    assert process.command[:3] == ("python", "-m", "blockyard.connectors.mock")
    assert process.command[3:] == (
        f"--socket={tmp_path}/state/block-manager/channel.sock",
        "--name=demo-node-0",
        f"--block-bytes={2 << 20}",
        "--replay",
    )


# --- memory -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("capacity", ["256MiB", "1GiB", "1.5GiB", "64GiB", "100GB", "2147483648"])
def test_limits_hold_the_arena(capacity: str) -> None:
    settings = NodeSettings.model_validate({"g2": {"capacity": capacity}})
    block_bytes = int(settings.node.block_bytes)
    arena = ArenaGeometry(int(settings.g2.capacity) // block_bytes, block_bytes).total_bytes
    rendered = render(EXTERNAL, {"settings": {"g2": {"capacity": capacity}}})
    for service in ("offload-worker", "remote-tier"):
        assert memory(rendered, service)[1] >= arena + 512 * MIB
    assert memory(rendered, "block-manager")[1] < 2 << 30


def test_the_arena_is_requested_once() -> None:
    """Its pages are charged to whoever writes them first, yet there is only one of each."""
    rendered = render(EXTERNAL, {"settings": {"g2": {"capacity": "64GiB"}}})
    requests = {service: memory(rendered, service)[0] for service in SERVICES}
    assert requests["offload-worker"] > 64 << 30
    assert requests["remote-tier"] < 1 << 30
    for service in ("block-manager", "offload-worker"):
        request, limit = memory(rendered, service)
        assert request == limit


def test_memory_grows_with_the_number_of_blocks() -> None:
    def of(values: Values) -> int:
        return memory(render(EXTERNAL, values), "block-manager")[1]

    small = of({"settings": {"g3": {"capacity": "1GiB"}}})
    assert of({"settings": {"g3": {"capacity": "1TiB"}}}) > small + 512 * (1 << 40) // (128 << 10) * 9 // 10
    assert of(NO_DISK) < small


def test_given_memory_holds_where_it_is_enough() -> None:
    values: Values = {"offloadWorker": {"resources": {"limits": {"memory": "3Gi"}, "requests": {"cpu": "2"}}}}
    resources = render(EXTERNAL, values).pod("node").container("offload-worker")["resources"]
    assert resources == {"limits": {"memory": "3Gi"}, "requests": {"cpu": "2", "memory": "3Gi"}}
    same: Values = {"offloadWorker": {"resources": {"requests": {"memory": "3072Mi"}}}}
    assert render(EXTERNAL, values, same).objects


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"offloadWorker": {"resources": {"limits": {"memory": "1Gi"}}}}, "offloadWorker.resources.limits.memory"),
        ({"remoteTier": {"resources": {"limits": {"memory": "1200Mi"}}}}, "remoteTier.resources.limits.memory"),
        ({"blockManager": {"resources": {"limits": {"memory": "64Mi"}}}}, "blockManager.resources.limits.memory"),
        (
            {"offloadWorker": {"resources": {"limits": {"memory": "4Gi"}, "requests": {"memory": "3Gi"}}}},
            "offloadWorker.resources.requests.memory",
        ),
        ({"standalone": {"resources": {"limits": {"memory": "64Mi"}}}}, "standalone.resources.limits.memory"),
        (
            {"remoteTier": {"resources": {"requests": {"memory": "64Mi"}}}},
            "remoteTier.resources.requests.memory",
        ),
    ],
)
def test_too_little_memory_is_refused(values: Manifest, field: str) -> None:
    with pytest.raises(helm.HelmError, match=re.escape(field)):
        render(EXTERNAL, STANDALONE, values)


@pytest.mark.parametrize("block_bytes", ["4KiB", "128KiB", "2MiB"])
def test_the_volume_of_a_sidecar_holds_the_slab(block_bytes: str) -> None:
    capacity = 4 << 30
    values: Values = {"settings": {"node": {"block_bytes": block_bytes}, "g3": {"capacity": shown_size(capacity)}}}
    size = int(NodeSettings.model_validate({"node": {"block_bytes": block_bytes}}).node.block_bytes)
    slab = SlabGeometry(capacity // size, size).total_bytes
    claim = render(CASES["Sidecar, claims"], values).named("StatefulSet", "-node")["spec"]["volumeClaimTemplates"][0]
    assert bytes_of(claim["spec"]["resources"]["requests"]["storage"]) >= slab * 1.09
    volumes = render(CASES["Sidecar"], values).pod("node").spec["volumes"]
    (empty,) = [volume["emptyDir"] for volume in volumes if volume["name"] == "g3"]
    assert bytes_of(empty["sizeLimit"]) >= slab * 1.09
    # So that the pod goes where there is room for it.
    worker = render(CASES["Sidecar"], values).pod("node").container("offload-worker")
    assert worker["resources"]["requests"]["ephemeral-storage"] == empty["sizeLimit"]


def test_tiers_that_are_off_have_neither_services_nor_volumes() -> None:
    pod = render(CASES["DaemonSet, host memory only"]).pod("node")
    assert [container["name"] for container in pod.spec["containers"]] == ["block-manager", "offload-worker"]
    assert {volume["name"] for volume in pod.spec["volumes"]} == {"state", "config", "tmp"}
    assert Tier.G3.name.lower() not in {volume["name"] for volume in pod.spec["volumes"]}
