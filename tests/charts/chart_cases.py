"""Values that between them use every branch of the chart: each case must give objects that keep all the rules.

Threading: values.
"""

from collections.abc import Callable, Iterable
from typing import Final

import yaml
from tests.charts.chart_kit import CHART, Rendered, Values, merged, render

EXTERNAL: Final[Values] = {
    "nats": {"external": {"url": "nats://nats.internal:4222"}},
    "redis": {"external": {"url": "redis://redis.internal:6380/2"}},
    "s3": {"external": {"endpointUrl": "https://s3.internal"}, "existingSecret": {"name": "s3-account"}},
}
"""Servers of one's own, named in the open."""
SECRET: Final[Values] = {
    "nats": {"external": {"existingSecret": {"name": "nats-address"}}},
    "redis": {"external": {"existingSecret": {"name": "redis-address", "key": "address"}}},
    "s3": {
        "external": {"endpointUrl": "http://s3.internal:9000"},
        "existingSecret": {"name": "s3", "accessKeyKey": "user", "secretKeyKey": "password"},
    },
}
"""The same, named in secrets."""
BUNDLED: Final[Values] = {
    "nats": {"bundled": {"enabled": True}},
    "redis": {"bundled": {"enabled": True}},
    "s3": {"bundled": {"enabled": True}, "existingSecret": {"name": "s3-account"}},
}
PASSWORDS: Final[Values] = {
    "nats": {"bundled": {"existingSecret": {"name": "nats-account"}}},
    "redis": {"bundled": {"existingSecret": {"name": "redis-account"}}},
}
"""Accounts for the bundled servers."""
SIDECAR: Final[Values] = {"node": {"kind": "Sidecar", "replicas": 3}}
STANDALONE: Final[Values] = {"standalone": {"enabled": True}}
LOCAL_ONLY: Final[Values] = {
    "settings": {"g4": {"enabled": False}},
    "nats": {"external": {"url": "nats://nats.internal:4222"}},
}
NO_DISK: Final[Values] = {"settings": {"g3": {"enabled": False}}}
TRACES: Final[Values] = {"settings": {"tracing": {"endpoint_url": "http://collector.observability:4318"}}}
MONITORED: Final[Values] = {
    "monitoring": {
        "checkCapabilities": False,
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Blockyard"}},
    }
}
POD_KEYS: Final[Values] = {
    "podLabels": {"team": "inference"},
    "podAnnotations": {"example.com/note": "yes"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
            }
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "priorityClassName": "important",
    "podSecurityContext": {"supplementalGroups": [2000]},
    "extraVolumes": [{"name": "certificates", "configMap": {"name": "authority"}}],
}
CONTAINER_KEYS: Final[Values] = {
    "extraEnv": [{"name": "SSL_CERT_FILE", "value": "/certificates/ca.pem"}],
    "extraVolumeMounts": [{"name": "certificates", "mountPath": "/certificates", "readOnly": True}],
}
EVERY_KEY: Final[Values] = {
    "imagePullSecrets": [{"name": "pull"}],
    "node": POD_KEYS | {"runtimeClassName": "nvidia"},
    "standalone": POD_KEYS,
    **{name: CONTAINER_KEYS for name in ("blockManager", "offloadWorker", "remoteTier")},
    **{name: {"bundled": POD_KEYS | CONTAINER_KEYS} for name in ("nats", "redis", "s3")},
    "serviceAccount": {"annotations": {"example.com/role": "none"}},
    "service": {"annotations": {"example.com/note": "yes"}, "internalTrafficPolicy": "Local"},
}
"""The keys that every component takes, each with something in it."""
DIGEST: Final = "sha256:" + "5" * 64
DIGESTS: Final[Values] = {
    name: {"image": {"repository": "registry.example/blockyard/it", "digest": DIGEST, "pullPolicy": "Always"}}
    for name in ("blockManager", "offloadWorker", "remoteTier", "engine")
}
GPU_ENGINE: Final[Values] = {
    "engine": {
        "image": {"repository": "registry.example/engine", "tag": "1.2.3"},
        "command": ["serve"],
        "args": ["--port=8000", "--kv-socket=$(NODE_SOCKET)"],
        "env": [{"name": "HF_HOME", "value": "/models"}],
        "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "64Gi"}},
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
    },
    "node": {"extraVolumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}]},
}
CLAIM: Final[Values] = {"node": {"sidecar": {"g3": {"kind": "PersistentVolumeClaim", "storageClassName": "local"}}}}
KEPT: Final[Values] = {
    name: {"bundled": {"persistence": {"enabled": True, "size": "7Gi", "storageClassName": "fast"}}}
    for name in ("nats", "redis", "s3")
}
NOT_KEPT: Final[Values] = {
    name: {"bundled": {"persistence": {"enabled": False, "size": "3Gi"}}} for name in ("nats", "redis", "s3")
}
OTHER_PORTS: Final[Values] = {"ports": {"blockManager": 9001, "offloadWorker": 9002, "remoteTier": 9003}}
PEERS: Final[Values] = {
    "networkPolicy": {
        "dns": {"to": [], "port": 5353},
        "rest": {"from": [{"namespaceSelector": {"matchLabels": {"routers": "yes"}}}]},
        "metrics": {"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "prometheus"}}}]},
        "nats": {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "port": 14222},
        "redis": {"to": [{"ipBlock": {"cidr": "10.2.0.0/16"}}], "port": 16379},
        "s3": {"to": [{"ipBlock": {"cidr": "10.3.0.0/16"}}], "port": 9443},
        "otlp": {"to": [{"namespaceSelector": {"matchLabels": {"traces": "yes"}}}]},
        "engine": {"from": [{"podSelector": {}}], "egress": [{"ports": [{"port": 443, "protocol": "TCP"}]}]},
    }
}
QUIET: Final[Values] = {
    "networkPolicy": {"enabled": False},
    "helmTest": {"enabled": False},
    "serviceAccount": {"create": False},
    "node": {"podDisruptionBudget": {"enabled": False}},
    "standalone": {"podDisruptionBudget": {"enabled": False}},
}

CASES: Final[dict[str, Values]] = {
    "DaemonSet": EXTERNAL,
    "DaemonSet, secrets": SECRET,
    "DaemonSet, bundled": BUNDLED,
    "DaemonSet, bundled, passwords": merged(BUNDLED, PASSWORDS),
    "DaemonSet, bundled, kept": merged(BUNDLED, KEPT),
    "DaemonSet, bundled, not kept": merged(BUNDLED, NOT_KEPT),
    "DaemonSet, local tiers": LOCAL_ONLY,
    "DaemonSet, host memory only": merged(LOCAL_ONLY, NO_DISK),
    "DaemonSet, no disk": merged(EXTERNAL, NO_DISK),
    "DaemonSet, folders prepared by others": merged(EXTERNAL, {"node": {"hostPath": {"prepare": False}}}),
    "DaemonSet, traces, peers": merged(EXTERNAL, TRACES, PEERS),
    "DaemonSet, monitors": merged(EXTERNAL, STANDALONE, MONITORED),
    "DaemonSet, other ports": merged(EXTERNAL, STANDALONE, OTHER_PORTS, MONITORED),
    "DaemonSet, every key": merged(BUNDLED, PASSWORDS, STANDALONE, EVERY_KEY, TRACES),
    "DaemonSet, IPv6": merged(EXTERNAL, {"bindHost": "::"}),
    "DaemonSet, names": merged(BUNDLED, {"nameOverride": "kv", "serviceAccount": {"name": "cache"}}),
    "Sidecar": merged(EXTERNAL, SIDECAR),
    "Sidecar, secrets, digests": merged(SECRET, SIDECAR, DIGESTS),
    "Sidecar, bundled": merged(BUNDLED, SIDECAR, STANDALONE),
    "Sidecar, local tiers": merged(LOCAL_ONLY, SIDECAR),
    "Sidecar, no disk": merged(EXTERNAL, SIDECAR, NO_DISK),
    "Sidecar, claims": merged(EXTERNAL, SIDECAR, CLAIM),
    "Sidecar, GPU": merged(EXTERNAL, SIDECAR, GPU_ENGINE, PEERS, TRACES),
    "Sidecar, monitors": merged(EXTERNAL, SIDECAR, MONITORED),
    "Sidecar, every key": merged(BUNDLED, SIDECAR, STANDALONE, EVERY_KEY, CLAIM),
    "Sidecar, quiet": merged(EXTERNAL, SIDECAR, STANDALONE, QUIET),
    "standalone": merged(EXTERNAL, STANDALONE, {"node": {"enabled": False}}),
    "standalone, secrets": merged(SECRET, STANDALONE, {"node": {"enabled": False}}, MONITORED),
    **{
        f"example {path.stem}": yaml.safe_load(path.read_text()) for path in sorted((CHART / "examples").glob("*.yaml"))
    },
}


def in_cases(names: Iterable[str]) -> Callable[[Callable[[Rendered], None]], Callable[[], None]]:
    """Make one test of a rule: all these cases keep it, and the first that breaks it is named."""

    def as_test(rule: Callable[[Rendered], None]) -> Callable[[], None]:
        def test() -> None:
            for name in names:
                try:
                    rule(render(CASES[name]))
                except (AssertionError, LookupError, ValueError) as broken:
                    broken.add_note(f"case: {name}")
                    raise

        return test

    return as_test


in_every_case: Final = in_cases(CASES)
