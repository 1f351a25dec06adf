"""The API as an ASGI application: routes, errors as problems, bounded bodies, documentation without outside assets.

Threading: one event loop.
"""

from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from starlette.types import ASGIApp

from blockyard_block_manager.api import problems
from blockyard_block_manager.api.docs_page import DOCS_HTML
from blockyard_block_manager.api.limits import BodyLimit
from blockyard_block_manager.api.ports import ApiPorts
from blockyard_block_manager.api.routes import make_router


def make_application(ports: ApiPorts) -> ASGIApp:
    """The application that the HTTP server of the service mounts."""
    app = FastAPI(
        title="Blockyard",
        version="1",
        description="Operate a node of Blockyard. Errors are problems as of RFC 9457, application/problem+json.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    app.include_router(make_router(ports))
    problems.install(app)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(DOCS_HTML)

    return BodyLimit(app)
