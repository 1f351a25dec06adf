"""Errors of the API as ``application/problem+json`` (RFC 9457): every one of them, framework errors included.

The problem type is ``urn:blockyard:problem:<code>`` with the stable code of the typed error; its fields are members.
An error that nobody expects is answered too, and logged by the server; a broken decision ends the service as well.
Threading: no state.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from blockyard.core.errors import (
    BlockNotFoundError,
    BlockyardError,
    FencedError,
    FrameTooLargeError,
    RequestError,
    RequestNotSeenError,
    RevisionConflictError,
    TooManyKeysError,
    UnavailableError,
    UnsupportedOperationError,
)
from blockyard_block_manager.api.request_parts import UNREAD_BODY
from blockyard_block_manager.decisions import DecisionError, end_service

PROBLEM_JSON: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:blockyard:problem:"
_RESERVED: Final = frozenset({"type", "title", "status", "detail", "instance", "remedy"})
_STATUS: Final[tuple[tuple[type[BlockyardError], HTTPStatus], ...]] = (
    (TooManyKeysError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (FrameTooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (BlockNotFoundError, HTTPStatus.NOT_FOUND),
    (RequestNotSeenError, HTTPStatus.NOT_FOUND),
    (UnsupportedOperationError, HTTPStatus.CONFLICT),
    (RevisionConflictError, HTTPStatus.CONFLICT),
    (FencedError, HTTPStatus.CONFLICT),
    (RequestError, HTTPStatus.BAD_REQUEST),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
)
_RETRY_SECONDS: Final = "1"
_REMEDIES: Final[dict[int, str]] = {
    HTTPStatus.NOT_FOUND: "See /docs or /openapi.json for the pages of this API.",
    HTTPStatus.METHOD_NOT_ALLOWED: "Use a method that the header Allow names.",
    HTTPStatus.BAD_REQUEST: "Send a body of JSON in UTF-8.",
}
"""What to do about an error of the framework."""
_MOST_NAMED: Final = 16
"""Wrong fields that an answer names; a body may have thousands."""


def problem(
    status: int,
    code: str,
    title: str,
    remedy: str,
    detail: str = "",
    members: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """One problem as a response; ``remedy`` says what to do next."""
    body: dict[str, object] = {"type": TYPE_PREFIX + code, "title": title, "status": status}
    if detail:
        body["detail"] = detail
    body["remedy"] = remedy
    body.update({name: value for name, value in (members or {}).items() if name not in body})
    further = {"Retry-After": _RETRY_SECONDS} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return JSONResponse(body, status_code=status, media_type=PROBLEM_JSON, headers={**further, **(headers or {})})


def install(app: FastAPI) -> None:
    """Answer all errors of ``app`` as problems."""
    app.add_exception_handler(BlockyardError, _typed)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _typed(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, BlockyardError):
        raise error
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.INTERNAL_SERVER_ERROR)
    members = {name: value for name, value in error.fields.items() if name not in _RESERVED}
    return problem(status, error.code, error.title, error.remedy, error.detail, members)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    wrong = [
        {"field": ".".join(str(part) for part in item["loc"]), "reason": str(item["msg"])}
        for item in error.errors()[:_MOST_NAMED]
    ]
    unread = any(item["type"] == UNREAD_BODY for item in error.errors())
    if wrong and wrong[0]["field"] == "body" and not unread and not _says_json(request):
        return problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            "The body is not said to be JSON",
            "Send the body as content-type application/json.",
        )
    return problem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "invalid-request",
        "The request does not fit its schema",
        "Correct the named fields and send it again.",
        members={"errors": wrong},
    )


def _says_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


async def _http(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    phrase = HTTPStatus(error.status_code).phrase
    remedy = _REMEDIES.get(error.status_code, RequestError.remedy)
    return problem(error.status_code, phrase.lower().replace(" ", "-"), phrase, remedy, headers=error.headers)


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, DecisionError):
        end_service(error)
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, BlockyardError.code, BlockyardError.title, BlockyardError.remedy)
