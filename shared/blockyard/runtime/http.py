"""HTTP side of a service: liveness, readiness, start-up, metrics, and what the service mounts beside them.

``/livez`` answers while the event loop turns. ``/startupz`` answers 200 once the service has started. ``/readyz``
lists every check by name, and answers 200 only if the service has started and all checks hold. Other paths belong to
the mounted application, if any.
Invariants: the address file exists only while requests are answered (after a kill: until the next start); a port in use
is a start error, never a retry; a connection on which no request comes together in time is closed, so that slow clients
cannot take all descriptors.
Threading: one event loop, no other thread.
"""

import asyncio
import contextlib
import errno
import json
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from blockyard.core.errors import ConfigurationError, StartupError
from blockyard.runtime.logs import get_logger
from blockyard.runtime.node_folder import ServiceFolder
from blockyard.runtime.setting_values import is_every_address
from blockyard.runtime.telemetry import Metrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_BACKLOG: Final = 128
_GRACE_SECONDS: Final = 2
HEAD_SECONDS: Final = 10.0
"""Time for the head of a request; the mounted application bounds that of the body."""
_JSON: Final = "application/json"
_PROBLEM_JSON: Final = "application/problem+json"
_NO_PAGE: Final = "Ask for /livez, /startupz, /readyz or /metrics."
HEAD_BYTES: Final = 64 << 10
"""Longest head of a request: address and headers."""
_LINGER_SECONDS: Final = 1.0
"""Time to read what a refused client still sends; without it the system drops the answer with the connection."""
_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """One condition for being ready."""

    name: str
    ok: bool
    detail: str = ""


class Health:
    """What the service knows about its own readiness."""

    def __init__(self) -> None:
        """Not started, no checks."""
        self._checks: dict[str, Check] = {}
        self.started = False
        """Set once by the service, when its first start-up work is done."""

    def set(self, name: str, ok: bool, detail: str = "") -> None:
        """Add a check or replace its result; ``detail`` says what is missing."""
        self._checks[name] = Check(name, ok, detail)

    @property
    def checks(self) -> tuple[Check, ...]:
        """All checks, in the order they were first set."""
        return tuple(self._checks.values())

    @property
    def ready(self) -> bool:
        """True when started and every check holds."""
        return self.started and all(check.ok for check in self._checks.values())


class ServiceHttp:
    """HTTP server of one service; use as ``async with ServiceHttp(...)``."""

    def __init__(
        self,
        host: str,
        port: int,
        health: Health,
        metrics: Metrics,
        app: AsgiApp | None = None,
        *,
        advertised_host: str = "",
        folder: ServiceFolder | None = None,
        port_key: str = "port",
    ) -> None:
        """Prepare; nothing is bound before the ``async with``.

        Args:
            host: address to bind.
            port: port to bind; 0 lets the system choose.
            health: what ``/readyz`` shows.
            metrics: what ``/metrics`` shows.
            app: application for all other paths; its lifespan hooks are not called.
            advertised_host: host under which others reach this service, where it is not the one that is bound.
            folder: where the address is written while the server is up.
            port_key: setting that the port comes from, for errors.
        """
        self._host = host
        self._port = port
        self._port_key = port_key
        self._advertised_host = advertised_host
        self._folder = folder
        self._pages = _Pages(health, metrics, app)
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.url = ""
        """Base address once entered, for this machine: loopback where every address is bound."""

    async def __aenter__(self) -> Self:
        """Bind, serve, and write the address file.

        Raises:
            ConfigurationError: the address cannot be bound; names the setting to change.
        """
        listener = self._bind()
        config = uvicorn.Config(
            self._pages,
            log_config=None,
            access_log=False,
            lifespan="off",
            # On h11, not on what happens to be installed beside it: one parser everywhere, the one the tests have met.
            http=_Protocol,
            h11_max_incomplete_event_size=HEAD_BYTES,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]), name="http")
        up = asyncio.create_task(self._server.up.wait())
        await asyncio.wait({up, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        if not self._server.up.is_set():
            up.cancel()
            await self._serving
            raise StartupError("the HTTP server ended at start")
        if self._folder is not None:
            self._folder.write_http(self.url)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Withdraw the address, finish open requests for a moment, stop."""
        if self._folder is not None:
            self._folder.remove_http()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving

    def advertise(self) -> str:
        """Base address to tell others; call once entered.

        Where every address is bound and no setting names one, the name of the machine is a guess: there is a warning.
        """
        host = self._advertised_host or self._host
        if is_every_address(host):
            host = socket.gethostname()
            _log.warning("others may not reach this address: name one", key="http.advertised_host", guess=host)
        return _url(host, self._port)

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        # Named as TCP, because the event loop sends small parts of answers without delay only then.
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, self._port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise self._unbound(error) from error
        self._port = listener.getsockname()[1]
        loopback = "::1" if family == socket.AF_INET6 else "127.0.0.1"
        self.url = _url(loopback if is_every_address(self._host) else self._host, self._port)
        return listener

    def _unbound(self, error: OSError) -> ConfigurationError:
        key, advice = self._port_key, "choose a free port, or 0 for any"
        if error.errno == errno.EACCES:
            advice = "choose a port from 1024 on, or 0 for any"
        elif error.errno != errno.EADDRINUSE:
            # No port would help where the host is not one of this machine, or no name that it can resolve.
            key, advice = "http.host", "name an address of this machine, like 127.0.0.1"
        reason = error.strerror or str(error)
        return ConfigurationError(
            f"cannot bind the HTTP address: {advice}", key=key, host=self._host, port=self._port, reason=reason
        )


class _Protocol(H11Protocol):
    """Closes its connection where the head of a request does not arrive; refuses what is no HTTP with a problem."""

    _head_timer: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if not self._refused:
            self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be parsed; called while its error is handled."""
        self._refused = True
        self._stop_watching()
        if self.conn.our_state is not h11.IDLE:
            # In the middle of an answer to an earlier part there is no place for another one.
            self.transport.close()
            return
        too_long = getattr(sys.exception(), "error_status_hint", 400) == 431
        status, body = (431, _HEAD_TOO_LONG) if too_long else (400, _NO_HTTP)
        headers = [("content-type", _PROBLEM_JSON), ("content-length", str(len(body))), ("connection", "close")]
        for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.write_eof()
        self._head_timer = self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_watching()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_watching(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class _Server(uvicorn.Server):
    """Says when it is up, and leaves the signals of the process alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Pages:
    """Answers the pages of every service, and passes the rest on."""

    def __init__(self, health: Health, metrics: Metrics, app: AsgiApp | None) -> None:
        self._health = health
        self._metrics = metrics
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = self._page(scope["path"]) if scope["type"] == "http" else None
        if page is None:
            if self._app is not None:
                await self._app(scope, receive, send)
                return
            page = (404, _problem(404, "not-found", "No such page", _NO_PAGE), _PROBLEM_JSON)
        elif scope["method"] not in ("GET", "HEAD"):
            page = (405, _problem(405, "method-not-allowed", "Only GET is answered here", "Use GET."), _PROBLEM_JSON)
        status, body, content_type = page
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _page(self, path: str) -> tuple[int, bytes, str] | None:
        match path:
            case "/livez":
                return 200, b'{"live": true}', _JSON
            case "/startupz":
                started = self._health.started
                return 200 if started else 503, json.dumps({"started": started}).encode(), _JSON
            case "/readyz":
                return self._readiness()
            case "/metrics":
                self._show_health()
                body, content_type = self._metrics.exposition()
                return 200, body, content_type
        return None

    def _show_health(self) -> None:
        self._metrics.ready.set(self._health.ready)
        for check in self._health.checks:
            self._metrics.check_ok.labels(check.name).set(check.ok)

    def _readiness(self) -> tuple[int, bytes, str]:
        ready = self._health.ready
        checks = [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in self._health.checks]
        body = {"ready": ready, "started": self._health.started, "checks": checks}
        return 200 if ready else 503, json.dumps(body).encode(), _JSON


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _problem(status: int, code: str, title: str, remedy: str) -> bytes:
    body = {"type": f"urn:blockyard:problem:{code}", "title": title, "status": status, "remedy": remedy}
    return json.dumps(body).encode()


_HEAD_TOO_LONG: Final = _problem(
    431,
    "head-too-large",
    "Address and headers of the request are too long",
    f"Send at most {HEAD_BYTES} bytes of them.",
)
_NO_HTTP: Final = _problem(400, "bad-request", "The request is not HTTP", "Send HTTP/1.1 as RFC 9112 says.")
