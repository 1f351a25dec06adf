"""The Pod Security Standard "restricted", as rules over the spec of a pod.

Written after the standard's own list of controls (baseline and restricted), for Linux pods.
Threading: pure functions.
"""

from collections.abc import Iterator
from typing import Any, Final

_VOLUMES: Final = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"),
}
_SECCOMP: Final = ("RuntimeDefault", "Localhost")

Spec = dict[str, Any]


def violations(spec: Spec) -> list[str]:
    """What "restricted" forbids in a pod; empty where it would be admitted."""
    return [*_pod(spec), *(problem for container in _containers(spec) for problem in _container(spec, container))]


def _containers(spec: Spec) -> list[Spec]:
    return [*spec.get("initContainers", []), *spec["containers"], *spec.get("ephemeralContainers", [])]


def _pod(spec: Spec) -> Iterator[str]:
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield name
    for volume in spec.get("volumes", []):
        for kind in set(volume) - {"name"} - _VOLUMES:
            yield f"volume {volume['name']}: {kind}"
    context = spec.get("securityContext", {})
    if context.get("sysctls"):
        yield "sysctls"
    yield from _common("pod", context)


def _common(where: str, context: Spec) -> Iterator[str]:
    """What neither a pod nor a container may say."""
    if context.get("runAsUser") == 0:
        yield f"{where}: runAsUser 0"
    if context.get("runAsNonRoot") is False:
        yield f"{where}: runAsNonRoot false"
    if context.get("seccompProfile", {"type": "RuntimeDefault"})["type"] not in _SECCOMP:
        yield f"{where}: seccompProfile"
    if context.get("seLinuxOptions", {}).keys() & {"user", "role"}:
        yield f"{where}: seLinuxOptions"
    if context.get("appArmorProfile", {"type": "RuntimeDefault"})["type"] not in _SECCOMP:
        yield f"{where}: appArmorProfile"
    if context.get("windowsOptions", {}).get("hostProcess"):
        yield f"{where}: hostProcess"


def _container(spec: Spec, container: Spec) -> Iterator[str]:
    name, context, pod = container["name"], container.get("securityContext", {}), spec.get("securityContext", {})
    yield from _common(name, context)
    if context.get("privileged"):
        yield f"{name}: privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield f"{name}: capabilities not dropped"
    for added in set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capability {added}"
    if not context.get("runAsNonRoot", pod.get("runAsNonRoot", False)):
        yield f"{name}: may run as root"
    if "seccompProfile" not in context and "seccompProfile" not in pod:
        yield f"{name}: no seccompProfile"
    if context.get("procMount", "Default") != "Default":
        yield f"{name}: procMount"
    if any(port.get("hostPort") for port in container.get("ports", [])):
        yield f"{name}: hostPort"
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        action = container.get(probe, {})
        if any(action.get(kind, {}).get("host") for kind in ("httpGet", "tcpSocket")):
            yield f"{name}: {probe} asks another host"
