"""The commands that ask a node: what they ask, what they say, and how they fail."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from blockyard.cli.commands import app
from blockyard.cli.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from blockyard.runtime.node_folder import NodeFolder, ServiceName

REPORT = {
    "engine": "vllm",
    "dp_rank": 1,
    "age_seconds": 12.4,
    "prompt_tokens": 1_500,
    "local_tokens": 256,
    "found_tokens": {"g2": 512, "g3": 1_024, "g4": 0},
    "loaded_tokens": 512,
    "reason": "too_dear",
    "explanation": "by the measured times, computing the rest was faster than loading it",
    "lookup_ms": 0.84,
}


@dataclass
class Node:
    """A block-manager that answers one thing."""

    status: int = 200
    body: bytes = b"{}"
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    url: str = ""

    def answer(self, body: object, status: int = 200) -> None:
        self.status, self.body = status, json.dumps(body).encode()


@pytest.fixture
def node() -> Iterator[Node]:
    served = Node()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length", 0)))
            served.asked.append((self.command, self.path, json.loads(content) if content else None))
            self.send_response(served.status)
            self.send_header("content-length", str(len(served.body)))
            self.end_headers()
            self.wfile.write(served.body)

        do_PUT = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        served.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


def test_why_says_what_was_found_loaded_and_computed_and_what_ended_the_hit(node: Node) -> None:
    node.answer({"request": "a/b 1", "reports": [REPORT]})
    result = CliRunner().invoke(app, ["why", "a/b 1", "--node", node.url])
    assert result.exit_code == EXIT_OK, result.output
    assert node.asked == [("GET", "/v1/requests/a%2Fb%201", None)]
    assert result.stdout.splitlines() == [
        "request a/b 1 at engine vllm, rank 1, 12 s ago:",
        "  prompt    1,500 tokens",
        "  in G1     256",
        "  found     512 in g2, 1,024 in g3 (lookup: 0.8 ms)",
        "  loaded    512",
        "  computed  732",
        "  because   by the measured times, computing the rest was faster than loading it (too_dear)",
    ]


def test_why_of_a_request_that_the_node_did_not_see_says_so(node: Node) -> None:
    node.answer({"type": "urn:blockyard:problem:request-not-seen", "remembered": 7}, 404)
    result = CliRunner().invoke(app, ["why", "r", "--node", node.url])
    assert result.exit_code == EXIT_FAILED
    assert "not seen here" in result.stderr
    assert "remembered=7" in result.stderr


@pytest.mark.parametrize(
    ("to", "enabled", "said"), [("off", False, "loads are off until"), ("on", True, "loads are on\n")]
)
def test_loads_switches_and_says_what_the_node_says(node: Node, to: str, enabled: bool, said: str) -> None:
    node.answer({"enabled": enabled})
    result = CliRunner().invoke(app, ["loads", to, "--node", node.url + "/"])
    assert result.exit_code == EXIT_OK, result.output
    assert node.asked == [("PUT", "/v1/loading", {"enabled": enabled})]
    assert said in result.stdout


def test_a_switch_has_two_positions(node: Node) -> None:
    assert CliRunner().invoke(app, ["loads", "sideways", "--node", node.url]).exit_code == EXIT_USAGE
    assert node.asked == []


def test_without_an_address_the_one_in_the_node_folder_is_asked(node: Node, tmp_path: Path) -> None:
    folder = NodeFolder(tmp_path).service(ServiceName.BLOCK_MANAGER)
    folder.create()
    env = {"BLOCKYARD_NODE__FOLDER": str(tmp_path)}
    missing = CliRunner().invoke(app, ["loads", "on"], env=env)
    assert missing.exit_code == EXIT_FAILED
    assert "http.json" in missing.stderr
    folder.write_http(node.url)
    node.answer({"enabled": True})
    assert CliRunner().invoke(app, ["loads", "on"], env=env).exit_code == EXIT_OK
    assert len(node.asked) == 1


@pytest.mark.parametrize("url", ["10.0.0.7:8801", "http://", "ftp://host"])
def test_what_is_no_address_is_wrong_usage(url: str) -> None:
    result = CliRunner().invoke(app, ["why", "r", "--node", url])
    assert result.exit_code == EXIT_USAGE
    assert "--node" in result.stderr


def test_a_node_that_does_not_answer_is_named() -> None:
    result = CliRunner().invoke(app, ["why", "r", "--node", "http://127.0.0.1:9"])
    assert result.exit_code == EXIT_FAILED
    assert "http://127.0.0.1:9" in result.stderr
    assert "--node" in result.stderr


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (503, b'{"type": "urn:blockyard:problem:not-ready", "detail": "not yet"}', "reason=not yet"),
        (404, b'{"title": "Not Found"}', "reason=Not Found"),
        (200, b"<html>", "does not speak"),
        (200, b"[]", "does not speak"),
    ],
)
def test_an_answer_of_another_kind_is_no_success(node: Node, status: int, body: bytes, said: str) -> None:
    node.status, node.body = status, body
    result = CliRunner().invoke(app, ["loads", "off", "--node", node.url])
    assert result.exit_code == EXIT_FAILED
    assert said in result.stderr
    assert f"status={status}" in result.stderr
