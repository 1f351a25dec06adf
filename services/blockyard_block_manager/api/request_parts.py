"""Parts of a request that nobody reads: refused, since a misspelt or misplaced scope would mean everything.

A parameter of the query is known if the route or one of its dependencies declares it; it may be given once. A body may
be sent only where one is read.
Threading: no state.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

UNREAD_BODY: Final = "unread_body"
"""Type of the error about a body that nobody reads."""


async def refuse_unread_parts(request: Request) -> None:
    """Let only requests pass of which everything is read.

    Raises:
        RequestValidationError: unknown or repeated parameters of the query, or a body where none is read.
    """
    route = cast("APIRoute", request.scope["route"])
    known = sorted(set(_parameters(route.dependant)))
    errors = [
        {"type": "unknown_parameter", "loc": ("query", name), "msg": _unknown(known)}
        if name not in known
        else {"type": "repeated_parameter", "loc": ("query", name), "msg": "may be given once"}
        for name, given in Counter(name for name, _ in request.query_params.multi_items()).items()
        if name not in known or given > 1
    ]
    if route.body_field is None and await request.body():
        errors.append({"type": UNREAD_BODY, "loc": ("body",), "msg": f"no body is read here; {_unknown(known)}"})
    if errors:
        raise RequestValidationError(errors)


def _parameters(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        yield field.alias
    for inner in dependant.dependencies:
        yield from _parameters(inner)


def _unknown(known: list[str]) -> str:
    return f"parameters of the query are: {', '.join(known)}" if known else "there are no parameters of the query"
