"""REST API under requests made from its own OpenAPI document, right ones and wrong ones."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from tests.unit.block_manager.world import MakeWorld, World

from blockyard.core.errors import UnavailableError
from blockyard.core.vocabulary import EngineId
from blockyard.wire.connector_channel import RequestDecision
from blockyard.wire.events import InstanceRecord
from blockyard_block_manager.api.application import make_application
from blockyard_block_manager.api.ports import ApiPorts
from blockyard_block_manager.api.problems import PROBLEM_JSON, TYPE_PREFIX
from blockyard_block_manager.remote_index import RemoteIndex

EXAMPLES = 40
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
OPERATIONS = [
    ("GET", "/v1/tiers"),
    ("GET", "/v1/engines"),
    ("GET", "/v1/nodes"),
    ("POST", "/v1/lookup"),
    ("POST", "/v1/tiers/{tier}:clear"),
    ("POST", "/v1/blocks:keep"),
    ("POST", "/v1/blocks:expend"),
    ("POST", "/v1/tiers:clear"),
    ("GET", "/v1/requests/{request}"),
    ("GET", "/v1/loading"),
    ("PUT", "/v1/loading"),
]


async def nobody() -> tuple[InstanceRecord, ...]:
    raise UnavailableError("NATS is away")


@pytest.fixture
def document(make_world: MakeWorld) -> Iterator[schemathesis.BaseSchema]:
    """The document of a node with an engine and no blocks: there a clear never waits. It knows one request."""
    world: World = make_world(g4=True).ready()
    world.connect("one")
    decision = RequestDecision(request="0", prompt_tokens=9, local_tokens=0, reason="not_stored")
    world.core.decisions.report(EngineId("one"), 0, [decision])
    ports = ApiPorts(core=world.core, index=RemoteIndex(world.clock), list_instances=nobody)
    yield schemathesis.openapi.from_asgi("/openapi.json", make_application(ports))
    world.check()


def test_every_operation_is_tried(document: schemathesis.BaseSchema) -> None:
    paths = document.raw_schema["paths"]
    assert [(method.upper(), path) for path, methods in paths.items() for method in methods] == OPERATIONS


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        *((method, path, GenerationMode.POSITIVE) for method, path in OPERATIONS),
        *((method, path, GenerationMode.NEGATIVE) for method, path in OPERATIONS if method != "GET"),
    ],
)
def test_every_answer_is_as_documented_and_every_error_a_problem(
    method: str, path: str, mode: GenerationMode, document: schemathesis.BaseSchema
) -> None:
    @given(case=document[path][method].as_strategy(generation_mode=mode))
    @settings(derandomize=True, max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    def attempt(case: schemathesis.Case[Any]) -> None:
        answer = case.call()
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == [PROBLEM_JSON]
            body = answer.json()
            assert body["type"].startswith(TYPE_PREFIX)
            assert body["status"] == answer.status_code

    attempt()
