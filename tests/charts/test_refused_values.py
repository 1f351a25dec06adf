"""Values that cannot work are refused before anything reaches the cluster, and the message names the value."""

import re
from typing import Any

import pytest
from pydantic import ValidationError
from tests.charts.chart_cases import BUNDLED, EXTERNAL, PASSWORDS, SECRET, SIDECAR, STANDALONE
from tests.charts.chart_kit import SERVICES, Values, helm, merged, render
from tests.charts.values_schema import OWNED

from blockyard.runtime.settings import NodeSettings


def nested(path: str, value: Any) -> Values:
    """Values with one entry at ``a.b.c``."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


def refusal(*layers: Values) -> str:
    with pytest.raises(helm.HelmError) as error:
        render(*layers)
    return str(error.value)


def kebab_to_camel(name: str) -> str:
    """Key of a service in the values."""
    first, *others = name.split("-")
    return first + "".join(word.capitalize() for word in others)


# --- the schema -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "value"),
    [
        # wrong kinds of values
        ("node.replicas", "three"),
        ("node.replicas", 1.5),
        ("node.enabled", "yes"),
        ("node.tolerations", {"key": "gpu"}),
        ("node.nodeSelector", ["gpu"]),
        ("blockManager.extraEnv", {"NAME": "value"}),
        ("imagePullSecrets", ["pull"]),
        ("serviceAccount.annotations", {"a": 1}),
        ("settings.g3.enabled", "true"),
        ("settings.jobs.max_items", "64"),
        # out of range
        ("node.replicas", 0),
        ("standalone.replicas", 0),
        ("node.podDisruptionBudget.maxUnavailable", 0),
        ("node.terminationGracePeriodSeconds", 10),
        ("standalone.terminationGracePeriodSeconds", 5),
        ("ports.blockManager", 0),
        ("ports.offloadWorker", 80),
        ("ports.remoteTier", 65_536),
        ("networkPolicy.nats.port", 70_000),
        ("probes.startup.failureThreshold", 0),
        ("settings.node.block_bytes", 1_024),
        ("settings.tracing.sample_ratio", 1.5),
        ("settings.jobs.max_items", 4_096),
        ("settings.nats.lease_ttl_seconds", 0),
        # not one of the choices, not of the form
        ("node.kind", "Deployment"),
        ("node.sidecar.g3.kind", "HostPath"),
        ("node.sidecar.g3.size", "ten"),
        ("node.hostPath.state", "var/lib/blockyard"),
        ("node.hostPath.state", "/"),
        ("service.internalTrafficPolicy", "local"),
        ("blockManager.image.tag", "latest"),
        ("blockManager.image.tag", "a b"),
        ("blockManager.image.digest", "sha256:12"),
        ("blockManager.image.repository", ""),
        ("blockManager.image.pullPolicy", "Sometimes"),
        ("engine.image.repository", "UPPER/case"),
        ("bindHost", "localhost:80"),
        ("fullnameOverride", "Not_A_Name"),
        ("fullnameOverride", "a.b"),
        ("fullnameOverride", "7up"),
        ("nameOverride", "two words"),
        ("monitoring.dashboards.label", "a: b"),
        ("settings.g2.capacity", "64Gb/s"),
        ("settings.g3.capacity", "much"),
        ("settings.g3.mover", "rsync"),
        ("settings.node.namespace", "Prod"),
        ("settings.log.level", "trace"),
        ("offloadWorker.resources.limits.memory", "64 GB"),
        ("monitoring.podMonitor.interval", "often"),
        ("nats.bundled.syncInterval", "never"),
        ("nats.bundled.persistence.size", "big"),
        ("engine.ports", [{"name": "a-name-that-is-too-long", "containerPort": 80}]),
        ("engine.ports", [{"containerPort": 80}]),
        ("engine.ports", [{"name": "http", "containerPort": 0}]),
        # accounts belong into secrets
        ("nats.external.url", "nats://user:password@host:4222"),
        ("redis.external.url", "redis://:password@host:6379/0"),
        ("s3.external.endpointUrl", "https://key:secret@host"),
        ("nats.external.url", "host:4222"),
        ("redis.external.url", "redis://host:6379/first"),
        ("s3.external.endpointUrl", "https://host/bucket"),
        ("s3.existingSecret.name", "Not A Name"),
        # settings have a place of their own
        ("blockManager.extraEnv", [{"name": "BLOCKYARD_G2__CAPACITY", "value": "1GiB"}]),
        ("remoteTier.extraEnv", [{"name": "blockyard_log__level", "value": "debug"}]),
        ("offloadWorker.extraEnv", [{"value": "nameless"}]),
        # what selects pods, and by what Helm knows its objects
        ("node.podLabels", {"app.kubernetes.io/component": "x"}),
        ("nats.bundled.podLabels", {"app.kubernetes.io/part-of": "x"}),
        ("monitoring.podMonitor.labels", {"app.kubernetes.io/managed-by": "x"}),
        # unknown keys
        ("replicas", 3),
        ("node.replica", 3),
        ("node.hostpath", {}),
        ("blockManager.resource", {}),
        ("blockManager.resources.limit", {}),
        ("blockManager.image.tags", "1"),
        ("nats.url", "nats://host:4222"),
        ("nats.bundled.replicas", 3),
        ("s3.external.url", "http://host"),
        ("networkPolicy.ingress", []),
        ("monitoring.alerts", {}),
        ("settings.g5", {}),
        ("settings.g3.capacty", "1GiB"),
    ],
)
def test_the_schema_refuses(path: str, value: object) -> None:
    message = refusal(EXTERNAL, nested(path, value))
    assert "don't meet the specifications of the schema" in message
    *owner, last = path.split(".")
    # An unknown key is named behind its owner, a wrong value by its place.
    assert "/".join(owner) in message
    assert last in message


@pytest.mark.parametrize(
    ("path", "component", "container"),
    [
        *((f"{kebab_to_camel(name)}.extraEnv", "node", name) for name in SERVICES),
        ("engine.env", "node", "engine"),
        ("nats.bundled.extraEnv", "nats", "nats"),
        ("redis.bundled.extraEnv", "redis", "valkey"),
        ("s3.bundled.extraEnv", "s3", "seaweedfs"),
    ],
)
def test_a_variable_that_the_chart_gives_is_not_taken_twice(path: str, component: str, container: str) -> None:
    """Server-side apply refuses an object with the same name twice, and says nothing of the value to change."""
    pods = [render(values, SIDECAR).pod(component) for values in (merged(BUNDLED, PASSWORDS), BUNDLED)]
    given = {entry["name"] for pod in pods for entry in pod.container(container).get("env", [])}
    assert given
    for name in given:
        assert f"/{path.replace('.', '/')}/0/name" in refusal(EXTERNAL, nested(path, [{"name": name, "value": "x"}]))


@pytest.mark.parametrize("key", sorted(OWNED))
def test_settings_that_the_chart_makes_are_not_taken(key: str) -> None:
    """Two places for one setting would be one too many: variables win over the file."""
    message = refusal(EXTERNAL, {"settings": nested(key, "x")})
    assert key.split(".")[1] in message or key.split(".")[0] in message


@pytest.mark.parametrize("path", ["settings.g2.capacity", "settings.g4.enabled", "settings.node.block_bytes", "ports"])
def test_what_templates_read_cannot_be_taken_away(path: str) -> None:
    *owner, last = path.split(".")
    message = refusal(EXTERNAL, nested(path, None))
    assert "missing propert" in message
    assert last in message
    assert all(name in message for name in owner)


# --- combinations -----------------------------------------------------------------------------------------------------
def without(values: Values, *paths: str) -> Values:
    return merged(values, *(nested(path, "") for path in paths))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        # servers: none, or more than one
        (
            without(EXTERNAL, "nats.external.url"),
            "nats.external.url, nats.external.existingSecret.name or nats.bundled",
        ),
        (
            without(EXTERNAL, "redis.external.url"),
            "redis.external.url, redis.external.existingSecret.name or redis.bun",
        ),
        (without(EXTERNAL, "s3.external.endpointUrl"), "s3.external.endpointUrl or s3.bundled.enabled: one of them"),
        (without(EXTERNAL, "s3.existingSecret.name"), "s3.existingSecret.name: name the secret"),
        (without(BUNDLED, "s3.existingSecret.name"), "s3.existingSecret.name: name the secret"),
        (merged(EXTERNAL, nested("nats.bundled.enabled", True)), "nats.external.url, nats.bundled.enabled: give one"),
        (
            merged(EXTERNAL, nested("redis.bundled.enabled", True)),
            "redis.external.url, redis.bundled.enabled: give one",
        ),
        (merged(EXTERNAL, nested("s3.bundled.enabled", True)), "s3.external.endpointUrl, s3.bundled.enabled: give one"),
        (
            merged(SECRET, nested("nats.external.url", "nats://host:4222")),
            "nats.external.url, nats.external.existingSecret.name: give one",
        ),
        # nothing to run, or something that cannot
        (merged(EXTERNAL, nested("node.enabled", False)), "node.enabled, standalone.enabled: nothing would run"),
        (
            merged(EXTERNAL, STANDALONE, nested("settings.g4.enabled", False)),
            "standalone.enabled: a remote-tier needs settings.g4.enabled",
        ),
        (merged(EXTERNAL, nested("ports.remoteTier", 8801)), "ports: the services of a node share an address"),
        (
            merged(EXTERNAL, SIDECAR, nested("engine.ports", [{"name": "http", "containerPort": 8801}])),
            "engine.ports: 8801 is a port of the services",
        ),
        (
            merged(EXTERNAL, SIDECAR, nested("engine.ports", [{"name": "remote-tier", "containerPort": 80}])),
            "engine.ports: remote-tier is the name of a port of the services",
        ),
        # sockets are for their owner only
        (
            merged(EXTERNAL, SIDECAR, nested("engine.securityContext.runAsUser", 1000)),
            "engine.securityContext.runAsUser: 1000 cannot use the sockets of user 10001",
        ),
        (
            merged(EXTERNAL, SIDECAR, nested("engine.securityContext.runAsUser", 0)),
            "engine.securityContext.runAsUser: 0 cannot use the sockets of user 10001",
        ),
        (
            merged(
                EXTERNAL,
                SIDECAR,
                nested("podSecurityContext.runAsUser", None),
                nested("engine.securityContext.runAsUser", 1000),
            ),
            "engine.securityContext.runAsUser: 1000 cannot use the sockets of another user",
        ),
        (
            merged(EXTERNAL, nested("podSecurityContext.runAsUser", None)),
            "node.hostPath.prepare: needs podSecurityContext.runAsUser",
        ),
        # two nodes on one machine would fight over its folders
        (
            merged(EXTERNAL, nested("node.updateStrategy.rollingUpdate", {"maxSurge": 1, "maxUnavailable": 0})),
            "node.updateStrategy.rollingUpdate.maxSurge: two nodes cannot run on one machine",
        ),
        (
            merged(EXTERNAL, nested("node.hostPath.g3", "/var/lib/blockyard")),
            "node.hostPath: state and g3 must be two folders",
        ),
        # sizes
        (
            merged(BUNDLED, nested("settings.nats.stream_max_bytes", "4GiB")),
            "nats.bundled.persistence.size: 4Gi has no room for settings.nats.stream_max_bytes (4GiB)",
        ),
        (
            merged(BUNDLED, nested("redis.bundled.maxMemory", "2Gi")),
            "redis.bundled.maxMemory: 2Gi does not fit into redis.bundled.resources.limits.memory",
        ),
        (
            merged(EXTERNAL, SIDECAR, nested("node.sidecar.g3.size", "1Gi")),
            "node.sidecar.g3.size: 1Gi is too small",
        ),
    ],
)
def test_combinations_that_cannot_work_are_refused(values: Values, named: str) -> None:
    message = refusal(values)
    assert named in message


@pytest.mark.parametrize("name", ["7up", "team.cache", "123"])
def test_a_release_whose_name_no_service_can_have_is_refused(name: str) -> None:
    """Helm takes such names; without a word here, the cluster would refuse a part of the objects."""
    with pytest.raises(helm.HelmError, match="fullnameOverride: no service can be called"):
        render(EXTERNAL, name=name)
    assert render(EXTERNAL, nested("fullnameOverride", "kv"), name=name).objects


@pytest.mark.parametrize(
    ("path", "setting", "value"),
    [
        *(
            ("nats.external.url", "nats.url", url)
            for url in (
                "nats://a:4222",
                "nats://a:4222,b:4222",
                "nats://[::1]:4222",
                "tls://a",
                "nats://a b",
                "nats://",
            )
        ),
        *(("redis.external.url", "redis.url", f"redis://a:6379{path}") for path in ("", "/0", "/one", "/0/1")),
        *(
            (path, setting, url)
            for path, setting in (
                ("s3.external.endpointUrl", "g4.endpoint_url"),
                ("settings.tracing.endpoint_url", "tracing.endpoint_url"),
            )
            for url in ("http://a:80", "https://a/", "a:80", "ftp://a", "http://a/b", "http://a?b", "http://a,b")
        ),
        *(("settings.g4.bucket", "g4.bucket", bucket) for bucket in ("kv", "kv-1", "KV_1", "-kv", "kv/1")),
        *(
            ("settings.node.block_bytes", "node.block_bytes", size)
            for size in ("4KiB", "2MiB", "2MB", "5000", 4096, 6144, "65528KiB", "65532KiB", "64MiB", "2KiB")
        ),
    ],
)
def test_what_the_services_would_refuse_is_refused_before(path: str, setting: str, value: object) -> None:
    try:
        NodeSettings.model_validate(nested(setting, value))
    except ValidationError:
        last = path.rpartition(".")[2]
        assert last in refusal(EXTERNAL, nested(path, value))
    else:
        assert render(EXTERNAL, nested(path, value)).objects


def test_without_g4_neither_redis_nor_s3_is_asked_for() -> None:
    assert render({"nats": EXTERNAL["nats"], "settings": {"g4": {"enabled": False}}}).objects


def test_an_index_keeper_needs_no_nats() -> None:
    values = merged({name: EXTERNAL[name] for name in ("redis", "s3")}, STANDALONE, nested("node.enabled", False))
    assert render(values).objects
    assert "nats" not in render(values).settings_file


def test_a_message_says_what_is_enough() -> None:
    message = refusal(EXTERNAL, nested("offloadWorker.resources.limits.memory", "1Gi"))
    found = re.search(r"may come to use (\d+)Mi", message)
    assert found is not None
    enough = f"{found.group(1)}Mi"
    assert render(EXTERNAL, nested("offloadWorker.resources.limits.memory", enough)).objects
