"""Services reach the pods they are for, policies let through what is used and nothing else, budgets count pods."""

import json
from urllib.parse import urlsplit

import pytest
import yaml
from tests.charts.chart_cases import BUNDLED, CASES, EXTERNAL, SIDECAR, STANDALONE, TRACES, in_cases, in_every_case
from tests.charts.chart_kit import SERVICES, Manifest, PodTemplate, Rendered, merged, render

WITH_POLICIES = [name for name in CASES if name != "Sidecar, quiet"]
DEFAULT_PORTS = {"http": 80, "https": 443, "nats": 4222, "redis": 6379}


def selected(rendered: Rendered, selector: Manifest) -> list[PodTemplate]:
    """Pods that a map of labels selects."""
    return [pod for pod in rendered.pods if selector.items() <= pod.labels.items()]


def policy_of(rendered: Rendered, pod: PodTemplate) -> Manifest:
    (policy,) = [
        item["spec"]
        for item in rendered.of_kind("NetworkPolicy")
        if item["spec"]["podSelector"]["matchLabels"].items() <= pod.labels.items()
    ]
    return dict(policy)


def ports(rules: list[Manifest], protocol: str = "TCP") -> set[int]:
    return {port["port"] for rule in rules for port in rule["ports"] if port["protocol"] == protocol}


# --- selectors --------------------------------------------------------------------------------------------------------
@in_every_case
def test_workloads_select_their_own_pods_only(rendered: Rendered) -> None:
    for pod in rendered.pods:
        if pod.owner["kind"] != "Pod":
            selector = pod.owner["spec"]["selector"]["matchLabels"]
            assert [found.name for found in selected(rendered, selector)] == [pod.name]


@in_every_case
def test_every_service_leads_to_a_port_of_its_pods(rendered: Rendered) -> None:
    for service in rendered.of_kind("Service"):
        (pod,) = selected(rendered, service["spec"]["selector"])
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in pod.ports
            assert port["port"] == pod.ports[port["targetPort"]]


@in_every_case
def test_stateful_sets_have_the_service_they_name(rendered: Rendered) -> None:
    services = {item["metadata"]["name"] for item in rendered.of_kind("Service")}
    for item in rendered.of_kind("StatefulSet"):
        assert item["spec"]["serviceName"] in services


def test_addresses_of_a_node_hold_while_it_is_not_ready() -> None:
    for service in (render(EXTERNAL).named("Service", "-nodes"), render(EXTERNAL).named("Service", "-api")):
        assert service["spec"]["publishNotReadyAddresses"] is True
    assert render(EXTERNAL).named("Service", "-nodes")["spec"]["clusterIP"] == "None"


@in_every_case
def test_budgets_count_the_pods_of_their_component(rendered: Rendered) -> None:
    for budget in rendered.of_kind("PodDisruptionBudget"):
        (pod,) = selected(rendered, budget["spec"]["selector"]["matchLabels"])
        # Nothing else has a scale that a budget in numbers missing could count.
        assert pod.owner["kind"] in ("StatefulSet", "Deployment")
        assert budget["spec"]["maxUnavailable"] >= 1


def test_pods_that_can_be_drained_have_a_budget() -> None:
    for values, names in ((SIDECAR, {"node"}), (merged(SIDECAR, STANDALONE), {"node", "remote-tier"}), ({}, set())):
        budgets = render(EXTERNAL, values).of_kind("PodDisruptionBudget")
        assert {item["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] for item in budgets} == names


# --- policies: in -----------------------------------------------------------------------------------------------------
@in_cases(WITH_POLICIES)
def test_every_pod_of_a_workload_is_closed(guarded: Rendered) -> None:
    for pod in guarded.pods:
        if pod.owner["kind"] != "Pod":
            assert policy_of(guarded, pod)["policyTypes"] == ["Ingress", "Egress"]


@in_cases(WITH_POLICIES)
def test_every_port_of_a_service_is_open_to_somebody(guarded: Rendered) -> None:
    for pod in guarded.pods:
        offered = {
            pod.ports[port["targetPort"]]
            for service in guarded.of_kind("Service")
            if service["spec"]["selector"].items() <= pod.labels.items()
            for port in service["spec"]["ports"]
        }
        if offered:
            assert ports(policy_of(guarded, pod)["ingress"]) == offered


@in_cases(WITH_POLICIES)
def test_policies_name_ports_that_pods_have(guarded: Rendered) -> None:
    for pod in guarded.pods:
        if pod.owner["kind"] != "Pod":
            assert ports(policy_of(guarded, pod)["ingress"]) <= set(pod.ports.values())


def test_without_peers_nobody_gets_in() -> None:
    closed: Manifest = {
        "networkPolicy": {"rest": {"from": []}, "metrics": {"from": []}},
        "helmTest": {"enabled": False},
    }
    for kind in ({}, SIDECAR):
        rendered = render(EXTERNAL, kind, STANDALONE, closed)
        policies = [item for item in rendered.of_kind("NetworkPolicy")]
        assert policies
        assert all(not item["spec"]["ingress"] for item in policies)


@in_cases(WITH_POLICIES)
def test_only_engine_ports_may_be_open_to_all(guarded: Rendered) -> None:
    for pod in guarded.pods:
        if pod.owner["kind"] == "Pod":
            continue
        engine = {
            port["containerPort"]
            for container in pod.spec["containers"]
            if container["name"] == "engine"
            for port in container.get("ports", [])
        }
        open_rules = [rule for rule in policy_of(guarded, pod)["ingress"] if "from" not in rule]
        assert ports(open_rules) <= engine


def test_bundled_servers_let_in_their_clients_alone() -> None:
    rendered = render(BUNDLED, STANDALONE)
    clients = {
        component: {
            peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for rule in policy_of(rendered, rendered.pod(component))["ingress"]
            for peer in rule["from"]
        }
        for component in ("nats", "redis", "s3")
    }
    assert clients == {"nats": {"node"}, "redis": {"node", "remote-tier"}, "s3": {"node", "remote-tier"}}
    for component in clients:
        assert policy_of(rendered, rendered.pod(component))["egress"] == []


# --- policies: out ----------------------------------------------------------------------------------------------------
def reached(rendered: Rendered, component: str) -> set[int]:
    """Ports of the servers that the settings name."""
    settings = yaml.safe_load(rendered.settings_file)
    urls = {
        "nats": settings.get("nats", {}).get("url"),
        "redis": settings.get("redis", {}).get("url"),
        "s3": settings["g4"].get("endpoint_url"),
        "otlp": settings["tracing"]["endpoint_url"],
    }
    remote = settings["g4"]["enabled"]
    wanted = {"otlp", *({"nats"} if component == "node" else set()), *({"redis", "s3"} if remote else set())}
    parts = [urlsplit(url) for name, url in urls.items() if url and name in wanted]
    return {part.port or DEFAULT_PORTS[part.scheme] for part in parts}


@in_cases([name for name in WITH_POLICIES if "peers" not in name and "GPU" not in name])
def test_pods_reach_every_server_that_the_settings_name(rendered: Rendered) -> None:
    for pod in rendered.pods:
        if pod.component in ("node", "remote-tier"):
            rules = policy_of(rendered, pod)["egress"]
            assert reached(rendered, pod.component) <= ports(rules)
            assert ports(rules, "UDP") == {53}


@pytest.mark.parametrize("component", ["node", "remote-tier"])
def test_ports_of_addresses_in_secrets_are_the_usual_ones(component: str) -> None:
    rendered = render(CASES["DaemonSet, secrets"], STANDALONE)
    expected = {53, 6379, 9000} | ({4222} if component == "node" else set())
    assert ports(policy_of(rendered, rendered.pod(component))["egress"]) == expected


def test_flows_out_lead_to_the_peers_that_are_named() -> None:
    rendered = render(CASES["DaemonSet, traces, peers"])
    egress = policy_of(rendered, rendered.pod("node"))["egress"]
    flows = {rule["ports"][0]["port"]: rule.get("to") for rule in egress}
    assert flows == {
        5353: None,
        14222: [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
        16379: [{"ipBlock": {"cidr": "10.2.0.0/16"}}],
        9443: [{"ipBlock": {"cidr": "10.3.0.0/16"}}],
        4318: [{"namespaceSelector": {"matchLabels": {"traces": "yes"}}}],
    }


def test_a_node_reaches_a_bundled_server_by_its_labels() -> None:
    rendered = render(BUNDLED)
    egress = policy_of(rendered, rendered.pod("node"))["egress"]
    for component, port in (("nats", 4222), ("redis", 6379), ("s3", 8333)):
        (rule,) = [rule for rule in egress if rule["ports"][0]["port"] == port]
        (peer,) = rule["to"]
        assert peer["podSelector"]["matchLabels"].items() <= rendered.pod(component).labels.items()
        assert rendered.pod(component).ports[component] == port


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("https://s3.example", 443),
        ("http://s3.example", 80),
        ("http://s3.example:9000", 9000),
        ("http://[fd00::1]:9000", 9000),
        ("http://[fd00::9000]", 80),
    ],
)
def test_the_port_of_an_address_is_understood(url: str, port: int) -> None:
    rendered = render(EXTERNAL, {"s3": {"external": {"endpointUrl": url}}})
    assert port in ports(policy_of(rendered, rendered.pod("node"))["egress"])


def test_an_engine_reaches_what_its_rules_say() -> None:
    rules = [{"ports": [{"port": 443, "protocol": "TCP"}], "to": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]}]
    values: Manifest = {"networkPolicy": {"engine": {"egress": rules}}}
    sidecar, daemon = render(EXTERNAL, SIDECAR, values), render(EXTERNAL, values)
    assert rules[0] in policy_of(sidecar, sidecar.pod("node"))["egress"]
    assert rules[0] not in policy_of(daemon, daemon.pod("node"))["egress"]


def test_without_policies_there_are_none() -> None:
    assert render(CASES["Sidecar, quiet"]).of_kind("NetworkPolicy", "PodDisruptionBudget") == []


def test_traces_open_no_port_where_there_are_none() -> None:
    def out(values: Manifest) -> set[int]:
        rendered = render(EXTERNAL, values)
        return ports(policy_of(rendered, rendered.pod("node"))["egress"])

    assert out(TRACES) - out({}) == {4318}


@pytest.mark.parametrize("who", [[], [{"namespaceSelector": {"matchLabels": {"routers": "yes"}}}]])
def test_the_test_of_the_release_reaches_nodes_whoever_else_may(who: list[Manifest]) -> None:
    rendered = render(EXTERNAL, {"networkPolicy": {"rest": {"from": who}}})
    probe, node = rendered.pod("test"), rendered.pod("node")
    (allowed,) = [
        rule
        for rule in policy_of(rendered, node)["ingress"]
        for peer in rule["from"]
        if peer.get("podSelector", {}).get("matchLabels", {"": ""}).items() <= probe.labels.items()
    ]
    assert ports([allowed]) == {node.ports["block-manager"]}
    # Also where the namespace denies all that nothing allows.
    resolve, ask = policy_of(rendered, probe)["egress"]
    assert ports([resolve], "UDP") == {53}
    assert ports([ask]) == {node.ports["block-manager"]}
    assert [selected(rendered, peer["podSelector"]["matchLabels"]) for peer in ask["to"]] == [[node]]


def test_names_are_asked_of_anybody_on_the_port_of_dns() -> None:
    """A selector would leave out the caches that run on the network of each machine."""
    rendered = render(BUNDLED, STANDALONE)
    for component in ("node", "remote-tier", "test"):
        rules = policy_of(rendered, rendered.pod(component))["egress"]
        assert rules[0] == {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}


def test_metrics_of_every_service_can_be_read() -> None:
    rendered = render(EXTERNAL)
    pod = rendered.pod("node")
    peers = json.dumps([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}])
    rules = [rule for rule in policy_of(rendered, pod)["ingress"] if json.dumps(rule["from"]) == peers]
    assert ports(rules) == {pod.ports[name] for name in SERVICES}
