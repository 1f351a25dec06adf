"""Routes of the API, version 1: read the node, look blocks up, hint, ask for a request, clear a tier, switch loads.

Invariants: handlers decide nothing; they turn requests into calls of the core and its answers into bodies.
Threading: one event loop.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from blockyard.core.clear_scope import ClearScope
from blockyard.core.errors import UnavailableError
from blockyard.core.events import BlockScope
from blockyard.core.eviction.retention import Retention
from blockyard.core.vocabulary import Availability, ContentKey, IdentityDigest, TenantDigest, Tier, key_of
from blockyard.runtime.current_trace import TraceScope
from blockyard.wire.connector_channel import Run
from blockyard.wire.trace_parent import NO_TRACE, TRACE_HEADER, TraceParent, parse_trace_parent
from blockyard_block_manager.api import schemas
from blockyard_block_manager.api.ports import ApiPorts
from blockyard_block_manager.api.problems import PROBLEM_JSON
from blockyard_block_manager.api.request_parts import refuse_unread_parts
from blockyard_block_manager.api.schemas import DIGEST_PATTERN, KEY_PATTERN
from blockyard_block_manager.clearing import ClearCounts, ClearOperation
from blockyard_block_manager.connector_requests import names_in
from blockyard_block_manager.decision_log import LoggedDecision
from blockyard_block_manager.decisions import deciding
from blockyard_block_manager.lookups import look_up
from blockyard_block_manager.node_views import engine_views, node_view, tier_views

TierName = Literal["g1", "g2", "g3", "g4"]
OptionalDigest = Annotated[str | None, Query(pattern=DIGEST_PATTERN, description="Only blocks of this model.")]
OptionalKey = Annotated[
    str | None, Query(pattern=KEY_PATTERN, description="Only blocks of this tenant, by its digest.")
]

# With ``model`` the document would say application/json.
_PROBLEM: Final[dict[str, Any]] = {
    "description": "Problem as of RFC 9457",
    "content": {PROBLEM_JSON: {"schema": schemas.Problem.model_json_schema()}},
}
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {"4XX": _PROBLEM, "5XX": _PROBLEM}
_MAX_WAIT_SECONDS: Final = 300.0


def make_router(ports: ApiPorts) -> APIRouter:
    """Routes over ``ports``."""
    router = APIRouter(prefix="/v1", responses=_ERRORS, dependencies=[Depends(refuse_unread_parts)])
    core = ports.core

    @router.get("/tiers", summary="Tiers of this node")
    async def tiers() -> schemas.Tiers:
        return schemas.Tiers(tiers=[schemas.Tier.model_validate(asdict(view)) for view in tier_views(core)])

    @router.get("/engines", summary="Engines connected to this node")
    async def engines() -> schemas.Engines:
        return schemas.Engines(engines=[schemas.Engine.model_validate(asdict(view)) for view in engine_views(core)])

    @router.get("/nodes", summary="This node and the others with a live lease")
    async def nodes() -> schemas.Nodes:
        known, others = await _others(ports)
        this = schemas.ThisNode.model_validate(asdict(node_view(core)))
        return schemas.Nodes(this=this, known=known, nodes=others)

    @router.post("/lookup", summary="Where blocks could be loaded from")
    async def lookup(
        request: schemas.LookupRequest, trace: Annotated[TraceParent, Depends(_trace)]
    ) -> schemas.LookupReply:
        with TraceScope(trace):
            return await _lookup(ports, request, trace)

    @router.post(
        "/tiers/{tier}:clear",
        summary="Empty a tier of this node, or take one model or tenant out of it",
        description="Answers 200 when a restart could bring nothing back, 202 where that takes longer than the wait.",
        responses={202: {"model": schemas.ClearReply, "description": "Under way; the blocks are gone already."}},
    )
    async def clear(
        tier: TierName,
        response: Response,
        scope: Annotated[ClearScope, Depends(_scope)],
        wait_seconds: Annotated[float, Query(ge=0, le=_MAX_WAIT_SECONDS)] = 30.0,
    ) -> schemas.ClearReply:
        [reply] = await _clear(lambda done: [core.clear(Tier[tier.upper()], done, scope)], wait_seconds)
        response.status_code = HTTPStatus.OK if reply.done else HTTPStatus.ACCEPTED
        return reply

    @router.post(
        "/blocks:keep",
        summary="Say that blocks are worth keeping",
        description="They leave G2 and G3 after all others, the lowest priority first. Nothing is pinned.",
    )
    async def keep(request: schemas.KeepRequest) -> schemas.HintReply:
        retention = Retention(request.priority, request.ttl_seconds)
        with deciding():
            return _hinted(core.tables.keep(_keys(request.digests), retention))

    @router.post(
        "/blocks:expend",
        summary="Say that blocks will not be wanted again",
        description="They leave G2 and G3 before all others, unless they are used before that.",
    )
    async def expend(request: schemas.ExpendRequest) -> schemas.HintReply:
        with deciding():
            return _hinted(core.tables.expend(_keys(request.digests)))

    @router.post(
        "/tiers:clear",
        summary="Empty all tiers of this node, or take one model or tenant out of them",
        description="As for one tier; the tiers lose their blocks at the same moment.",
        responses={202: {"model": schemas.ClearReplies, "description": "Under way; the blocks are gone already."}},
    )
    async def clear_all(
        response: Response,
        scope: Annotated[ClearScope, Depends(_scope)],
        wait_seconds: Annotated[float, Query(ge=0, le=_MAX_WAIT_SECONDS)] = 30.0,
    ) -> schemas.ClearReplies:
        replies = await _clear(lambda done: core.clear_all(done, scope), wait_seconds)
        all_done = all(reply.done for reply in replies)
        response.status_code = HTTPStatus.OK if all_done else HTTPStatus.ACCEPTED
        return schemas.ClearReplies(done=all_done, tiers=replies)

    @router.get("/requests/{request:path}", summary="Why the hit of a request ended where it ended")
    async def decisions(request: str) -> schemas.RequestReports:
        reports = [schemas.RequestReport.model_validate(_report(found)) for found in core.decisions.of(request)]
        return schemas.RequestReports(request=request, reports=reports)

    @router.get("/loading", summary="Whether loads are switched on")
    async def loading() -> schemas.Loading:
        return schemas.Loading(enabled=core.loading.enabled)

    @router.put(
        "/loading",
        summary="Switch loads off or on",
        description="Off, engines compute instead of loading; loads that run end as they would. Not kept by a restart.",
    )
    async def switch_loading(wanted: schemas.Loading) -> schemas.Loading:
        core.loading.switch(wanted.enabled)
        return schemas.Loading(enabled=core.loading.enabled)

    return router


def _report(found: LoggedDecision) -> dict[str, Any]:
    body = asdict(found)
    del body["request"]
    return body | {"reason": found.reason.value, "explanation": found.reason.sentence}


async def _trace(
    request: Request, traceparent: Annotated[str, Header(description="W3C trace context of the caller.")] = ""
) -> TraceParent:
    # Of several none is known to be the right one.
    return parse_trace_parent(traceparent) if len(request.headers.getlist(TRACE_HEADER)) == 1 else NO_TRACE


async def _lookup(ports: ApiPorts, request: schemas.LookupRequest, trace: TraceParent) -> schemas.LookupReply:
    digests = b"".join(bytes.fromhex(digest) for digest in request.digests)
    names = names_in(Run(digests=digests, first_position=request.first_position, parent=bytes.fromhex(request.parent)))
    scope = BlockScope(
        IdentityDigest(bytes.fromhex(request.identity)),
        TenantDigest(bytes.fromhex(request.tenant)),
        block_tokens=ports.core.profile.block_tokens,
    )
    answer = await look_up(ports.core, ports.index, scope, names, request.remote_wait_ms / 1_000, trace)
    prefix = next((index for index, status in enumerate(answer) if not status.is_hit), len(answer))
    return schemas.LookupReply(availability=[_name(status) for status in answer], prefix_blocks=prefix)


def _keys(digests: Sequence[str]) -> list[ContentKey]:
    return [key_of(bytes.fromhex(digest)) for digest in digests]


def _hinted(found: Mapping[Tier, int]) -> schemas.HintReply:
    return schemas.HintReply(g2=found.get(Tier.G2, 0), g3=found.get(Tier.G3, 0))


def _scope(identity: OptionalDigest = None, tenant: OptionalKey = None) -> ClearScope:
    return ClearScope(
        IdentityDigest(bytes.fromhex(identity)) if identity is not None else None,
        TenantDigest(bytes.fromhex(tenant)) if tenant is not None else None,
    )


async def _clear(
    begin: Callable[[Callable[[ClearCounts], None]], list[ClearOperation]], wait_seconds: float
) -> list[schemas.ClearReply]:
    ended = asyncio.Semaphore(0)
    with deciding():
        operations = begin(lambda _: ended.release())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_seconds):
            for _ in operations:
                await ended.acquire()
    return [
        schemas.ClearReply(tier=_cleared_name(operation.tier), done=operation.done, **asdict(operation.counts))
        for operation in operations
    ]


async def _others(ports: ApiPorts) -> tuple[bool, list[schemas.OtherNode]]:
    try:
        records = await ports.list_instances()
    except UnavailableError:
        return False, []
    return True, [
        schemas.OtherNode(
            instance=record.instance,
            epoch=record.epoch,
            api_url=record.api_url,
            engines=list(record.engines),
            version=record.version,
        )
        for record in records
    ]


def _name(status: Availability) -> schemas.AvailabilityName:
    names: dict[Availability, schemas.AvailabilityName] = {
        Availability.MISS: "miss",
        Availability.G2: "g2",
        Availability.G3: "g3",
        Availability.G4: "g4",
        Availability.UNKNOWN: "unknown",
    }
    return names[status]


def _cleared_name(tier: Tier) -> Literal["g2", "g3"]:
    return "g2" if tier is Tier.G2 else "g3"
