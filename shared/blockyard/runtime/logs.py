"""Log lines of a service: structured, to standard error, for people or as JSON.

Own code asks ``get_logger``; what libraries write through the standard module passes the same chain. A line written in
work for a trace names it as ``trace_id``. Invariants: a
field whose name promises a secret or request content is masked before it is rendered; long sequences and bytes are
shortened, so no payload and no token list reaches a log.
Threading: set up once at start; loggers may be used from any thread.
"""

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import IO, Any, Final

import structlog

from blockyard.runtime.current_trace import current_trace
from blockyard.runtime.settings import LogSection
from blockyard.wire.trace_parent import trace_id_of

HIDDEN_FIELDS: Final = frozenset(
    {"access_key", "secret_key", "password", "secret", "token", "tokens", "token_ids", "authorization", "prompt"}
)
_SHOWN_ITEMS: Final = 16
_SHOWN_BYTES: Final = 8
_QUIET_LIBRARIES: Final = ("uvicorn.error", "uvicorn.access", "botocore", "aiobotocore", "nats", "urllib3")


def configure_logs(section: LogSection, service: str, stream: IO[str] | None = None) -> None:
    """Send all log lines of this process to ``stream`` (default: standard error), each naming ``service``."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _Naming(service),
        _add_trace,
        structlog.stdlib.ExtraAdder(),
        _mask,
    ]
    target = stream or sys.stderr
    last: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
        if section.json_lines
        else [structlog.dev.ConsoleRenderer(colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback)]
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(section.level.upper())
    for name in _QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Logger for a module: ``get_logger(__name__).info("what happened", field=value)``."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


class _Naming:
    """Adds the name of the service to every line."""

    def __init__(self, service: str) -> None:
        self._service = service

    def __call__(self, _: object, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        event["service"] = self._service
        return event


def _add_trace(_: object, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    if trace := current_trace():
        event["trace_id"] = trace_id_of(trace)
    return event


def _mask(_: object, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    for name, value in event.items():
        if name.lower() in HIDDEN_FIELDS:
            event[name] = "(hidden)"
        elif isinstance(value, bytes | bytearray | memoryview):
            event[name] = _short_bytes(bytes(value[:_SHOWN_BYTES]), len(value))
        elif isinstance(value, list | tuple | set | frozenset) and len(value) > _SHOWN_ITEMS:
            event[name] = f"({len(value)} items)"
    return event


def _short_bytes(head: bytes, size: int) -> str:
    return head.hex() if size <= _SHOWN_BYTES else f"{head.hex()}… ({size} bytes)"
