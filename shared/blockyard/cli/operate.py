"""Commands that ask a running node through its REST interface, and what they say in plain words.

A node is named by the address of its block-manager; without one, the address is that which the block-manager of the
node folder in the settings has written.
Threading: one thread, blocking calls with a time limit.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import httpx

from blockyard.cli.failures import NodeAnswerError, NodeUnreachableError
from blockyard.core.errors import ConfigurationError, RequestNotSeenError
from blockyard.runtime.node_folder import NodeFolder, ServiceName
from blockyard.runtime.settings_source import load_settings

_TIMEOUT_SECONDS: Final = 5.0


def why(request: str, node: str) -> str:
    """What the node remembers of a request, as text.

    Raises:
        RequestNotSeenError: nothing.
        NodeUnreachableError, NodeAnswerError, ConfigurationError: the node cannot be asked.
    """
    body = _ask(node, "GET", f"/v1/requests/{quote(request, safe='')}")
    return "\n".join(_report(request, report) for report in body["reports"]) + "\n"


def switch_loads(enabled: bool, node: str) -> str:
    """Switch the loads of a node; what it says then, as text.

    Raises:
        NodeUnreachableError, NodeAnswerError, ConfigurationError: the node cannot be asked.
    """
    if _ask(node, "PUT", "/v1/loading", {"enabled": enabled})["enabled"]:
        return "loads are on\n"
    return "loads are off until they are switched on again or the block-manager starts anew\n"


def _ask(node: str, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
    url = _address(node)
    try:
        with httpx.Client(base_url=url, timeout=_TIMEOUT_SECONDS, trust_env=False) as client:
            response = client.request(method, path, json=body)
        answer = response.json()
    except httpx.HTTPError as error:
        raise NodeUnreachableError("no answer from the block-manager", url=url, reason=str(error)) from error
    except ValueError as error:
        raise NodeAnswerError("it does not speak this interface", url=url, status=response.status_code) from error
    if not isinstance(answer, dict):
        raise NodeAnswerError("it does not speak this interface", url=url, status=response.status_code)
    if response.status_code == HTTPStatus.NOT_FOUND and str(answer.get("type", "")).endswith(RequestNotSeenError.code):
        raise RequestNotSeenError("not seen here", url=url, remembered=int(answer.get("remembered", 0)))
    if not response.is_success:
        reason = answer.get("detail") or answer.get("title") or ""
        raise NodeAnswerError("it refused the request", url=url, status=response.status_code, reason=str(reason))
    return answer


def _address(node: str) -> str:
    if node:
        parts = httpx.URL(node) if node.startswith(("http://", "https://")) else None
        if parts is None or not parts.host:
            raise ConfigurationError("not an address such as http://host:port", key="--node")
        return node.rstrip("/")
    folder = NodeFolder.of(load_settings()).service(ServiceName.BLOCK_MANAGER)
    url = folder.read_http()
    if url is None:
        raise NodeUnreachableError("no block-manager has written its address there", file=str(folder.http))
    return url


def _report(request: str, report: Mapping[str, Any]) -> str:
    prompt, local, loaded = report["prompt_tokens"], report["local_tokens"], report["loaded_tokens"]
    found = ", ".join(f"{tokens:,} in {tier}" for tier, tokens in report["found_tokens"].items() if tokens)
    rank = f", rank {report['dp_rank']}" if report["dp_rank"] else ""
    return "\n".join(
        (
            f"request {request} at engine {report['engine']}{rank}, {report['age_seconds']:.0f} s ago:",
            f"  prompt    {prompt:,} tokens",
            f"  in G1     {local:,}",
            f"  found     {found or 'none'} (lookup: {report['lookup_ms']:.1f} ms)",
            f"  loaded    {loaded:,}",
            f"  computed  {max(0, prompt - local - loaded):,}",
            f"  because   {report['explanation']} ({report['reason']})",
        )
    )
