"""The schema of the chart's values: what stands in ``values.schema.json`` is made from here.

Invariants: maps of ours take the keys they have in ``values.yaml`` and no other; maps of Kubernetes (affinity,
tolerations, probes ...) are taken as they are, because the API server checks them. The settings come from
``NodeSettings``, less what the chart sets itself.
Threading: pure functions.
"""

import inspect
from collections.abc import Iterable
from enum import EnumType
from typing import Any, Final

from pydantic import BaseModel, ByteSize
from pydantic.fields import FieldInfo

from blockyard.runtime.settings import NodeSettings

Schema = dict[str, Any]

_NAME: Final = "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_KEY: Final = "^[-._a-zA-Z0-9]+$"
_LABEL: Final = "^([a-z0-9.-]+/)?[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?$"
_QUANTITY: Final = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$"
_SIZE: Final = r"^([0-9]+|[0-9]*\.[0-9]+) ?([bB]|[kKmMgGtTpP]([iI]?[bB])?)?$"
_OURS: Final = "[bB][lL][oO][cC][kK][yY][aA][rR][dD]_|(NATS_USER|NATS_PASSWORD|REDIS_PASSWORD)$"
"""Variables of the services; they read names of settings in upper and lower case alike."""
_SECONDS: Final = "^[1-9][0-9]*(s|m|h)$"
_ADDRESS_WITHOUT_ACCOUNT: Final = r"://([a-zA-Z0-9_.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?"
_BUCKET: Final = "^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$"
_SERVER_FOLDER: Final = "^/[^/]"
OWNED: Final = frozenset(
    {
        *("node.name", "node.folder", "g3.folder", "g4.standalone", "nats.url", "redis.url"),
        *("g4.endpoint_url", "g4.access_key", "g4.secret_key"),
        *("http.host", "http.advertised_host", "http.block_manager_port", "http.offload_worker_port"),
        *("http.remote_tier_port", "unsafe.skip_verification"),
    }
)
"""Settings that follow from other values, and one that is for tests."""
_READ_BY_TEMPLATES: Final = {
    "node": ["block_bytes"],
    "g2": ["capacity"],
    "g3": ["enabled", "capacity"],
    "g4": ["enabled"],
    "tracing": ["endpoint_url"],
}


def values_schema() -> Schema:
    """The whole schema, as JSON Schema draft 7: the newest that every Helm knows."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the Blockyard chart",
        **_closed(
            {
                "nameOverride": _text("^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$"),
                # Services take its name, which begin with a letter and have no dots.
                "fullnameOverride": _text("^([a-z]([a-z0-9-]*[a-z0-9])?)?$"),
                "imagePullSecrets": {"type": "array", "items": _closed({"name": _text(f"^{_NAME}$")})},
                "serviceAccount": _closed({"create": _flag(), "name": _text(f"^({_NAME})?$"), "annotations": _texts()}),
                "podSecurityContext": _free(),
                "securityContext": _free(),
                "bindHost": _text("^[0-9a-fA-F.:]+$"),
                "ports": _closed({name: _port() for name in ("blockManager", "offloadWorker", "remoteTier")}),
                "settings": settings_schema(),
                "node": _node(),
                **{name: _service() for name in ("blockManager", "offloadWorker", "remoteTier")},
                "standalone": _standalone(),
                "engine": _engine(),
                "probes": _probes(),
                "nats": _nats(),
                "redis": _redis(),
                "s3": _s3(),
                "service": _closed({"annotations": _texts(), "internalTrafficPolicy": _choice("Cluster", "Local")}),
                "networkPolicy": _network_policy(),
                "monitoring": _monitoring(),
                "helmTest": _closed({"enabled": _flag(), "seconds": _number(0)}),
                # Helm adds the first to all values; a chart that has this one as a part switches it on by the second.
                "global": _free(),
                "enabled": _flag(),
            },
            optional=("global", "enabled"),
        ),
    }


# --- building stones --------------------------------------------------------------------------------------------------
def _closed(properties: Schema, optional: Iterable[str] = ()) -> Schema:
    required = [name for name in properties if name not in set(optional)]
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def _free() -> Schema:
    return {"type": "object"}


def _list() -> Schema:
    return {"type": "array", "items": {"type": "object"}}


def _texts() -> Schema:
    return {"type": "object", "additionalProperties": {"type": "string"}}


def _labels() -> Schema:
    """Labels beside those that the chart gives, by which it selects pods and Helm knows its objects."""
    ours = r"^(app\.kubernetes\.io/(name|instance|component|part-of|version|managed-by)|helm\.sh/chart)$"
    return _texts() | {"patternProperties": {ours: False}}


def _text(pattern: str = "") -> Schema:
    return {"type": "string"} | ({"pattern": pattern} if pattern else {})


def _flag() -> Schema:
    return {"type": "boolean"}


def _number(least: int, most: int | None = None) -> Schema:
    return {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})


def _choice(*names: str) -> Schema:
    return {"enum": list(names)}


def _port(least: int = 1_024) -> Schema:
    """A port that a process without rights may bind, unless ``least`` says otherwise."""
    return _number(least, 65_535)


def _quantity(*, optional: bool = False) -> Schema:
    return _text(f"^$|{_QUANTITY}" if optional else _QUANTITY)


def _amounts(*, memory_needed: bool = False) -> Schema:
    amounts: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
    return amounts | {"properties": {"memory": _quantity()}} | ({"required": ["memory"]} if memory_needed else {})


def _computed_resources() -> Schema:
    """Of a service: the chart fills in the memory."""
    return _closed({"requests": _amounts(), "limits": _amounts()}, optional=("requests", "limits"))


def _resources() -> Schema:
    """Of a container whose memory is not computed: somebody must say how much it may use."""
    parts = {"requests": _amounts(), "limits": _amounts(memory_needed=True), "claims": _list()}
    return _closed(parts, optional=("requests", "claims"))


def _image() -> Schema:
    return _closed(
        {
            "repository": _text("^[a-z0-9][a-zA-Z0-9._:/-]*$"),
            # A tag that moves says neither what runs nor what ran yesterday.
            "tag": _text("^[A-Za-z0-9_.-]{0,128}$") | {"not": {"const": "latest"}},
            "digest": _text("^(sha256:[0-9a-f]{64})?$"),
            "pullPolicy": _choice("Always", "IfNotPresent", "Never"),
        }
    )


def _secret(*keys: str) -> Schema:
    return _closed({"name": _text(f"^({_NAME})?$"), **{key: _text(_KEY) for key in keys}})


def _pod() -> Schema:
    return {
        "podLabels": _labels(),
        "podAnnotations": _texts(),
        "nodeSelector": _texts(),
        "tolerations": _list(),
        "affinity": _free(),
        "topologySpreadConstraints": _list(),
        "priorityClassName": _text(f"^({_NAME})?$"),
        "podSecurityContext": _free(),
        "extraVolumes": _list(),
    }


def _variables(taken: str) -> Schema:
    """Variables beside those that the chart gives: server-side apply refuses a name that comes twice."""
    name = _text() | {"not": {"pattern": f"^({taken})"}}
    return {"type": "array", "items": _free() | {"required": ["name"], "properties": {"name": name}}}


def _container(taken: str) -> Schema:
    return {"securityContext": _free(), "extraEnv": _variables(taken), "extraVolumeMounts": _list()}


# --- components -------------------------------------------------------------------------------------------------------
def _budget() -> Schema:
    return _closed({"enabled": _flag(), "maxUnavailable": _number(1)})


def _node() -> Schema:
    folders = {"state": _text(_SERVER_FOLDER), "g3": _text(_SERVER_FOLDER), "prepare": _flag()}
    g3 = {
        "kind": _choice("EmptyDir", "PersistentVolumeClaim"),
        "size": _quantity(optional=True),
        "storageClassName": _text(),
    }
    return _closed(
        {
            "enabled": _flag(),
            "kind": _choice("DaemonSet", "Sidecar"),
            "replicas": _number(1),
            # Longer than the grace time of a service.
            "terminationGracePeriodSeconds": _number(15),
            "runtimeClassName": _text(f"^({_NAME})?$"),
            "seesEngineProcesses": _flag(),
            "updateStrategy": _free() | {"required": ["type"]},
            "hostPath": _closed(folders),
            "sidecar": _closed({"g3": _closed(g3)}),
            "podDisruptionBudget": _budget(),
            **_pod(),
        }
    )


def _service() -> Schema:
    memory = _closed({"base": _quantity(), "perBlock": _number(0)})
    return _closed({"image": _image(), "memory": memory, "resources": _computed_resources(), **_container(_OURS)})


def _standalone() -> Schema:
    return _closed(
        {
            "enabled": _flag(),
            "replicas": _number(1),
            "terminationGracePeriodSeconds": _number(15),
            "updateStrategy": _free() | {"required": ["type"]},
            "resources": _computed_resources(),
            "podDisruptionBudget": _budget(),
            **_pod(),
        }
    )


def _engine() -> Schema:
    port = _closed(
        {"name": _text("^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$"), "containerPort": _port(1), "protocol": _choice("TCP")},
        optional=["protocol"],
    )
    words = {"type": "array", "items": {"type": "string"}}
    return _closed(
        {
            "image": _image(),
            "command": words,
            "args": words,
            "env": _variables("(POD_NAME|NODE_SOCKET|NODE_BLOCK_BYTES)$"),
            "ports": {"type": "array", "items": port},
            "resources": _resources(),
            "volumeMounts": _list(),
            **{name: _free() for name in ("startupProbe", "readinessProbe", "livenessProbe", "securityContext")},
        }
    )


def _probes() -> Schema:
    probe = _closed({"periodSeconds": _number(1), "failureThreshold": _number(1)})
    return _closed({"startup": probe, "readiness": probe, "liveness": probe, "timeoutSeconds": _number(1)})


# --- servers ----------------------------------------------------------------------------------------------------------
def _bundled(own: Schema, taken: str) -> Schema:
    persistence = _closed({"enabled": _flag(), "size": _quantity(), "storageClassName": _text()})
    return _closed(
        {
            "enabled": _flag(),
            "image": _image(),
            **own,
            "persistence": persistence,
            "resources": _resources(),
            **_container(taken),
            **_pod(),
        }
    )


def _address(schemes: str, path: str = "") -> Schema:
    # An account in an address would stand in the values of the release for everybody to read.
    return _text(f"^(({schemes}){_ADDRESS_WITHOUT_ACCOUNT}{path})?$")


def _nats() -> Schema:
    own = {
        "syncInterval": _text(f"^always$|{_SECONDS}"),
        "existingSecret": _secret("userKey", "passwordKey"),
    }
    external = {"url": _address("nats|tls|ws|wss"), "existingSecret": _secret("key")}
    taken = "(GOMEMLIMIT|NATS_(QUOTED_)?(USER|PASSWORD))$"
    return _closed({"external": _closed(external), "bundled": _bundled(own, taken)})


def _redis() -> Schema:
    own = {"maxMemory": _quantity(), "existingSecret": _secret("passwordKey")}
    external = {"url": _address("redis|rediss", "(/[0-9]{1,5})?"), "existingSecret": _secret("key")}
    return _closed({"external": _closed(external), "bundled": _bundled(own, "REDIS_PASSWORD$")})


def _s3() -> Schema:
    return _closed(
        {
            "existingSecret": _secret("accessKeyKey", "secretKeyKey"),
            "external": _closed({"endpointUrl": _address("http|https", "/?")}),
            "bundled": _bundled({}, "(GOMEMLIMIT|GOGC|AWS_ACCESS_KEY_ID|AWS_SECRET_ACCESS_KEY)$"),
        }
    )


def _network_policy() -> Schema:
    server = _closed({"to": _list(), "port": _port(0)})
    return _closed(
        {
            "enabled": _flag(),
            "dns": _closed({"to": _list(), "port": _port(1)}),
            "rest": _closed({"from": _list()}),
            "metrics": _closed({"from": _list()}),
            **{name: server for name in ("nats", "redis", "s3", "otlp")},
            "engine": _closed({"from": _list(), "egress": _list()}),
        }
    )


def _monitoring() -> Schema:
    monitor = _closed({"enabled": _flag(), "labels": _labels(), "interval": _text(_SECONDS)})
    return _closed(
        {
            "checkCapabilities": _flag(),
            "podMonitor": monitor,
            "serviceMonitor": monitor,
            "prometheusRule": _closed({"enabled": _flag(), "labels": _labels()}),
            "dashboards": _closed(
                {"enabled": _flag(), "label": _text(_LABEL), "labelValue": _text(), "annotations": _texts()}
            ),
        }
    )


# --- settings ---------------------------------------------------------------------------------------------------------
def settings_schema() -> Schema:
    """Sections and keys of the settings that a user of the chart may give."""
    sections: Schema = {}
    for name, info in NodeSettings.model_fields.items():
        section = info.annotation
        if not (inspect.isclass(section) and issubclass(section, BaseModel)):
            raise TypeError(f"{name} is no section")
        keys = {
            key: _setting(f"{name}.{key}", field)
            for key, field in section.model_fields.items()
            if f"{name}.{key}" not in OWNED
        }
        if keys:
            needed = _READ_BY_TEMPLATES.get(name, [])
            sections[name] = _closed(keys, optional=[key for key in keys if key not in needed])
    return _closed(sections, optional=[name for name in sections if name not in _READ_BY_TEMPLATES])


def _setting(name: str, field: FieldInfo) -> Schema:
    kind = field.annotation
    limits = _limits(field)
    if kind is bool:
        return _flag()
    if kind is ByteSize:
        return {"type": ["string", "integer"], "pattern": _SIZE} | limits
    if kind in (int, float):
        return {"type": "integer" if kind is int else "number"} | limits
    if isinstance(kind, EnumType):
        return _choice(*(str(member.value) for member in kind))
    if kind is not str:
        raise TypeError(f"no schema for {name}: {kind}")
    # Where the settings have no pattern, they check the text in a way of their own.
    checked = {"g4.bucket": _text(_BUCKET), "tracing.endpoint_url": _address("http|https", "/?")}
    pattern = next((rule.pattern for rule in field.metadata if getattr(rule, "pattern", None)), None)
    return checked[name] if pattern is None else _text(pattern)


def _limits(field: FieldInfo) -> Schema:
    words = {"ge": "minimum", "le": "maximum"}
    return {
        word: getattr(rule, name)
        for rule in field.metadata
        for name, word in words.items()
        if getattr(rule, name, None) is not None
    }
