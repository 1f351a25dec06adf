"""Rules for every pod of every case: security, secrets, images, memory, mounts, probes, variables."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import httpx
import pytest
import yaml
from tests.architecture.doc_tables import environment_name, setting_keys
from tests.charts.chart_cases import BUNDLED, CASES, CLAIM, DIGESTS, EXTERNAL, KEPT, SIDECAR, STANDALONE, in_every_case
from tests.charts.chart_kit import CHART, SERVICES, Manifest, PodTemplate, Rendered, Values, merged, notes, render
from tests.charts.dockerfile import stages
from tests.charts.pod_security import violations

from blockyard.runtime.http import Health, ServiceHttp
from blockyard.runtime.supervisor import GRACE_SECONDS
from blockyard.runtime.telemetry import Metrics
from blockyard.tiers.arena import PAGE_BYTES

OTHER_VARIABLES = {
    *(
        "NATS_USER",
        "NATS_PASSWORD",
        "NATS_QUOTED_USER",
        "NATS_QUOTED_PASSWORD",
        "REDIS_PASSWORD",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    ),
    *("GOMEMLIMIT", "GOGC", "POD_NAME", "NODE_SOCKET", "NODE_BLOCK_BYTES", "SSL_CERT_FILE", "HF_HOME"),
}
SECRET_SETTINGS = ("NATS__URL", "REDIS__URL", "ACCESS_KEY", "SECRET_KEY", "PASSWORD", "USER")


def services(rendered: Rendered) -> list[tuple[PodTemplate, Manifest]]:
    """Containers of ours."""
    return [(pod, item) for pod in rendered.pods for item in pod.spec["containers"] if item["name"] in SERVICES]


# --- processes -----------------------------------------------------------------------------------------------------
def test_the_block_manager_sees_the_processes_of_engines_where_that_is_asked_for() -> None:
    seen: Values = {"node": {"seesEngineProcesses": True}}
    for kind, field in (({}, "hostPID"), (SIDECAR, "shareProcessNamespace")):
        without, with_it = render(EXTERNAL, kind), render(EXTERNAL, kind, seen)
        before, after = (found.pod("node").spec for found in (without, with_it))
        assert after == before | {field: True}
        assert field not in before
        others = [pod.spec for pod in with_it.pods if pod.spec != after]
        assert not any({"hostPID", "shareProcessNamespace"} & set(spec) for spec in others)


# --- security ---------------------------------------------------------------------------------------------------------
@in_every_case
def test_pods_meet_restricted_but_for_folders_of_the_machine(rendered: Rendered) -> None:
    for pod in rendered.pods:
        # Whoever may use folders of the machine is outside of "restricted" anyway; nothing else is, but the container
        # that gives them to the user of the services.
        allowed = {"volume state: hostPath", "volume g3: hostPath"}
        prepares = {
            "prepare-folders: runAsUser 0",
            "prepare-folders: runAsNonRoot false",
            "prepare-folders: may run as root",
            "prepare-folders: capability CHOWN",
        }
        found = set(violations(pod.spec))
        if pod.owner["kind"] == "DaemonSet":
            assert found - prepares <= allowed
            assert "volume state: hostPath" in found
            assert (prepares <= found) == ("initContainers" in pod.spec)
        else:
            assert found == set()


def test_no_root_is_needed_where_folders_are_prepared_by_others() -> None:
    pod = render(CASES["DaemonSet, folders prepared by others"]).pod("node")
    assert violations(pod.spec) == ["volume state: hostPath", "volume g3: hostPath"]
    # And the kubelet makes none that nobody could write to.
    assert {volume["hostPath"]["type"] for volume in pod.spec["volumes"] if "hostPath" in volume} == {"Directory"}


@pytest.mark.parametrize(
    ("where", "planted", "found"),
    [
        ("pod", {"hostNetwork": True}, "hostNetwork"),
        ("pod", {"volumes": [{"name": "x", "hostPath": {"path": "/x"}}]}, "volume x: hostPath"),
        ("pod", {"securityContext": {"runAsUser": 0, "runAsNonRoot": True}}, "pod: runAsUser 0"),
        ("pod", {"securityContext": {"runAsNonRoot": True}}, "block-manager: no seccompProfile"),
        ("container", {"privileged": True}, "block-manager: privileged"),
        ("container", {"allowPrivilegeEscalation": True}, "block-manager: allowPrivilegeEscalation"),
        ("container", {"capabilities": {"drop": ["NET_RAW"]}}, "block-manager: capabilities not dropped"),
        ("container", {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}, "block-manager: capability SYS_ADMIN"),
        ("container", {"runAsNonRoot": False}, "block-manager: may run as root"),
        ("container", {"seccompProfile": {"type": "Unconfined"}}, "block-manager: seccompProfile"),
    ],
)
def test_a_planted_violation_is_found(where: str, planted: Manifest, found: str) -> None:
    spec = json.loads(json.dumps(render(EXTERNAL, SIDECAR).pod("node").spec))
    if where == "pod":
        spec |= planted
    else:
        spec["containers"][0]["securityContext"] |= planted
    assert found in violations(spec)


@in_every_case
def test_roots_are_read_only_and_tokens_stay_away(rendered: Rendered) -> None:
    for pod in rendered.pods:
        assert pod.spec["automountServiceAccountToken"] is False
        assert pod.spec["enableServiceLinks"] is False
        assert all(container["securityContext"]["readOnlyRootFilesystem"] for container in pod.containers)
    assert all(account["automountServiceAccountToken"] is False for account in rendered.of_kind("ServiceAccount"))


@in_every_case
def test_all_processes_of_a_node_run_as_the_user_of_the_images(rendered: Rendered) -> None:
    user, _, group = stages()["block-manager"].user.partition(":")
    for pod in rendered.pods:
        assert pod.spec["securityContext"]["runAsUser"] == int(user)
        assert pod.spec["securityContext"]["runAsGroup"] == int(group)
        changed = [item["name"] for item in pod.containers if "runAsUser" in item["securityContext"]]
        assert changed in ([], ["prepare-folders"])


@pytest.mark.parametrize(
    ("security", "owner", "user"),
    [
        ({"node": {"podSecurityContext": {"runAsUser": 2000}}}, "2000:10001", 2000),
        ({"node": {"podSecurityContext": {"runAsUser": 2000, "runAsGroup": 3000}}}, "2000:3000", 2000),
        # A cluster may give each namespace a range of its own, far up.
        ({"podSecurityContext": {"runAsUser": 1_000_660_000, "runAsGroup": 0}}, "1000660000", 1_000_660_000),
        ({"podSecurityContext": {"runAsGroup": None}}, "10001", 10001),
    ],
)
def test_folders_of_the_machine_are_given_to_the_user_of_the_pod(security: Values, owner: str, user: int) -> None:
    pod = render(EXTERNAL, security).pod("node")
    assert pod.spec["initContainers"][0]["command"][:2] == ["chown", owner]
    assert pod.spec["securityContext"]["runAsUser"] == user
    assert f"({user})" in notes(EXTERNAL, security)
    same: Values = {"engine": {"securityContext": {"runAsUser": user}}}
    assert render(EXTERNAL, SIDECAR, security, same).objects


def test_the_cluster_may_choose_the_user() -> None:
    chosen: Values = {"podSecurityContext": {key: None for key in ("runAsUser", "runAsGroup", "fsGroup")}}
    pod = render(EXTERNAL, SIDECAR, chosen).pod("node")
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(pod.spec["securityContext"])
    prepared: Values = {"node": {"hostPath": {"prepare": False}}}
    assert "run as the user\nof its node, and connect" in notes(EXTERNAL, chosen, prepared)


@in_every_case
def test_secrets_come_by_reference_only(rendered: Rendered) -> None:
    assert rendered.of_kind("Secret") == []
    for pod in rendered.pods:
        for container in pod.containers:
            for entry in container.get("env", []):
                if entry["name"].endswith(SECRET_SETTINGS) and "value" in entry:
                    # Nothing but references to variables that come from secrets, and the address of a server.
                    account = re.search(r"//(.*)@|\"(.*)\"", entry["value"])
                    assert account is not None
                    assert re.fullmatch(r"((\$\([A-Z_]+\))?:)?\$\([A-Z_]+\)", account.group(1) or account.group(2))
    for config in rendered.of_kind("ConfigMap"):
        assert not re.search(r"access_key|secret_key|//[^/\s]*@", json.dumps(config["data"]))


# --- images and resources ---------------------------------------------------------------------------------------------
@in_every_case
def test_images_are_named_to_the_version(rendered: Rendered) -> None:
    for pod in rendered.pods:
        for container in pod.containers:
            name, _, version = container["image"].rpartition("@" if "@" in container["image"] else ":")
            assert name
            assert version
            assert version != "latest"


@in_every_case
def test_pods_run_on_linux(rendered: Rendered) -> None:
    assert all(pod.spec["nodeSelector"]["kubernetes.io/os"] == "linux" for pod in rendered.pods)


@in_every_case
def test_every_container_says_what_it_needs(rendered: Rendered) -> None:
    for pod in rendered.pods:
        for container in pod.containers:
            resources = container["resources"]
            assert resources["limits"]["memory"]
            assert container["name"] == "engine" or {"cpu", "memory"} <= set(resources["requests"])
            # A limit would stop a service for parts of each period, however idle the machine.
            assert "cpu" not in resources["limits"]


# --- files ------------------------------------------------------------------------------------------------------------
@in_every_case
def test_mounts_and_volumes_match(rendered: Rendered) -> None:
    for pod in rendered.pods:
        volumes = {volume["name"] for volume in pod.spec.get("volumes", [])} | set(pod.claims)
        mounts = [mount for container in pod.containers for mount in container.get("volumeMounts", [])]
        assert len(volumes) == len(pod.spec.get("volumes", [])) + len(pod.claims)
        assert {mount["name"] for mount in mounts} == volumes
        for container in pod.containers:
            paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            assert len(set(paths)) == len(paths)


@in_every_case
def test_config_maps_and_accounts_that_pods_name_exist(rendered: Rendered) -> None:
    maps = {item["metadata"]["name"] for item in rendered.of_kind("ConfigMap")} | {"authority"}
    accounts = {item["metadata"]["name"] for item in rendered.of_kind("ServiceAccount")} | {"default"}
    for pod in rendered.pods:
        for volume in pod.spec.get("volumes", []):
            assert volume.get("configMap", {"name": "authority"})["name"] in maps
        assert pod.spec["serviceAccountName"] in accounts


@in_every_case
def test_services_write_only_where_a_volume_is(rendered: Rendered) -> None:
    for _, container in services(rendered):
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        variables = {entry["name"]: entry.get("value", "") for entry in container["env"]}
        assert {variables["BLOCKYARD_NODE__FOLDER"], "/tmp", "/etc/blockyard"} <= mounts
        on_disk = yaml.safe_load(rendered.settings_file)["g3"]["enabled"]
        has_slab = on_disk and container["name"] == "offload-worker"
        assert (variables["BLOCKYARD_G3__FOLDER"] in mounts) == has_slab


@in_every_case
def test_services_and_engine_of_a_pod_share_the_state_folder(rendered: Rendered) -> None:
    for pod in rendered.pods:
        if pod.component != "node":
            continue
        shared = [
            [mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == "/var/lib/blockyard"]
            for container in pod.spec["containers"]
        ]
        assert shared == [["state"]] * len(shared)


# --- variables --------------------------------------------------------------------------------------------------------
@in_every_case
def test_every_variable_is_a_setting_or_known(rendered: Rendered) -> None:
    known = {environment_name(key) for key in setting_keys()} | {"BLOCKYARD_CONFIG"}
    for pod in rendered.pods:
        for container in pod.containers:
            names = [entry["name"] for entry in container.get("env", [])]
            assert len(set(names)) == len(names)
            assert {name for name in names if name.startswith("BLOCKYARD_")} <= known
            assert {name for name in names if not name.startswith("BLOCKYARD_")} <= OTHER_VARIABLES


def test_a_service_gets_only_the_secrets_it_uses() -> None:
    pod = render(CASES["DaemonSet, secrets"]).pod("node")
    secret = {
        container["name"]: {entry["name"] for entry in container["env"] if "secretKeyRef" in entry.get("valueFrom", {})}
        for container in pod.spec["containers"]
    }
    assert secret == {
        "block-manager": {"BLOCKYARD_NATS__URL"},
        "offload-worker": set(),
        "remote-tier": {"BLOCKYARD_REDIS__URL", "BLOCKYARD_G4__ACCESS_KEY", "BLOCKYARD_G4__SECRET_KEY"},
    }


@in_every_case
def test_references_stand_behind_what_they_name(rendered: Rendered) -> None:
    """Kubernetes expands only variables that were defined further up."""
    for pod in rendered.pods:
        for container in pod.containers:
            known: set[str] = set()
            for entry in container.get("env", []):
                assert set(re.findall(r"\$\((\w+)\)", str(entry.get("value", "")))) <= known
                known.add(entry["name"])
            words = " ".join([*container.get("command", []), *container.get("args", [])])
            assert set(re.findall(r"\$\((\w+)\)", words)) <= known


@pytest.mark.parametrize("case", ["DaemonSet", "Sidecar", "standalone"])
def test_the_chart_repeats_what_the_images_say(case: str) -> None:
    """Paths, addresses and ports: were they different, probes and mounts would miss the processes."""
    for pod, container in services(render(CASES[case])):
        image = stages()[container["name"]]
        variables = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
        ours = {name: value for name, value in image.environment.items() if name.startswith("BLOCKYARD_")}
        assert ours
        assert ours.items() <= variables.items()
        assert image.exposed == (pod.ports[container["name"]],)


# --- life -------------------------------------------------------------------------------------------------------------
@in_every_case
def test_pods_have_time_to_end_in_order(rendered: Rendered) -> None:
    for pod in rendered.pods:
        if any(container["name"] in SERVICES for container in pod.spec["containers"]):
            assert pod.spec["terminationGracePeriodSeconds"] > GRACE_SECONDS


@in_every_case
def test_probes_ask_the_port_of_their_own_container(rendered: Rendered) -> None:
    for _, container in services(rendered):
        own = {port["name"] for port in container["ports"]}
        probes = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
        assert {probe["port"] for probe in probes.values()} == own
        assert probes["startupProbe"]["path"] == "/startupz"
        assert probes["livenessProbe"]["path"] == "/livez"


def test_a_start_may_take_as_long_as_a_large_slab_on_a_slow_disk() -> None:
    """A start that is cut short begins anew, and so would never end."""
    probe = render(EXTERNAL).pod("node").container("offload-worker")["startupProbe"]
    budget_seconds = probe["periodSeconds"] * probe["failureThreshold"]
    # A file system that cannot reserve space writes it instead, and a network disk may have 125 MB/s.
    write_seconds = (1 << 40) / (1 << 30)
    blocks = (2 << 40) // (128 << 10)
    scan_seconds = blocks * (PAGE_BYTES / 125e6 + 10e-6)
    assert budget_seconds > 1.5 * max(write_seconds, scan_seconds)


def test_an_engine_takes_requests_without_nats_redis_and_s3() -> None:
    """In a pod with an engine, what is away must not take the engine out of service; else, Ready means whole."""
    paths = {
        kind: {item["readinessProbe"]["httpGet"]["path"] for _, item in services(render(EXTERNAL, values))}
        for kind, values in {"DaemonSet": {}, "Sidecar": SIDECAR}.items()
    }
    assert paths == {"DaemonSet": {"/readyz"}, "Sidecar": {"/startupz"}}
    keeper = render(CASES["standalone"]).pod("remote-tier").container("remote-tier")
    assert keeper["readinessProbe"]["httpGet"]["path"] == "/readyz"


def probed_paths() -> list[str]:
    pods = [pod for case in CASES.values() for pod in render(case).pods]
    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    ours = [item for pod in pods for item in pod.spec["containers"] if item["name"] in SERVICES]
    return sorted({item[probe]["httpGet"]["path"] for item in ours for probe in probes})


async def test_every_path_that_is_probed_or_read_is_answered() -> None:
    async with (
        asyncio.timeout(10),
        ServiceHttp("127.0.0.1", 0, Health(), Metrics("chart")) as server,
        httpx.AsyncClient(base_url=server.url, trust_env=False) as client,
    ):
        for path in (*probed_paths(), "/metrics"):
            assert (await client.get(path)).status_code in (200, 503), path
        assert (await client.get("/healthz")).status_code == 404


def test_the_services_are_started_by_their_images() -> None:
    for name in SERVICES:
        container = render(EXTERNAL).pod("node").container(name)
        assert not {"command", "args"} & set(container)
        assert stages()[name].entry_point == (f"blockyard-{name}",)
        assert container["image"].startswith(f"blockyard/{name}:")


def test_a_change_of_the_settings_starts_the_pods_again() -> None:
    def sums(values: Manifest) -> set[str]:
        rendered = render(CASES["Sidecar, bundled"], values)
        ours = [pod for pod in rendered.pods if pod.component in ("node", "remote-tier")]
        assert len(ours) == 2
        return {pod.annotations["checksum/settings"] for pod in ours}

    before = sums({})
    assert len(before) == 1
    assert sums({"settings": {"log": {"level": "debug"}}}).isdisjoint(before)
    assert sums({"node": {"podLabels": {"a": "b"}}}) == before


def test_a_new_version_of_the_chart_alone_changes_no_workload(tmp_path: Path) -> None:
    """Pods would start again for nothing, and what may never change, such as claims, would refuse the upgrade."""
    newer = Path(shutil.copytree(CHART, tmp_path / "blockyard"))
    stated = (newer / "Chart.yaml").read_text()
    (newer / "Chart.yaml").write_text(re.sub(r"(?<=ersion: )\d+\.\d+\.\d+$", "9.9.9", stated, flags=re.MULTILINE))
    for values in (merged(BUNDLED, KEPT, STANDALONE), merged(BUNDLED, SIDECAR, CLAIM)):
        before, after = (
            {pod.name: pod.owner["spec"] for pod in rendered.pods if pod.owner["kind"] != "Pod"}
            for rendered in (render(values, DIGESTS, chart=folder) for folder in (CHART, newer))
        )
        assert before
        assert after == before
    assert "9.9.9" in json.dumps(render(EXTERNAL, chart=newer).pod("node").spec)


def test_overlays_reach_the_container_they_are_for() -> None:
    values = merged(
        EXTERNAL,
        {"blockManager": {"securityContext": {"readOnlyRootFilesystem": False}}},
        {"node": {"podSecurityContext": {"fsGroup": 77}}},
    )
    pod = render(values).pod("node")
    assert pod.spec["securityContext"]["fsGroup"] == 77
    read_only = {item["name"]: item["securityContext"]["readOnlyRootFilesystem"] for item in pod.spec["containers"]}
    assert read_only == {"block-manager": False, "offload-worker": True, "remote-tier": True}
