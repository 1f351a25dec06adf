"""Frame of the local channels: what stands around a message on a unix socket.

::

    u32 length (little-endian, of what follows) | msgpack [version, kind, call, body]

``call`` pairs a reply with its request and is 0 for a push. File descriptors travel as SCM_RIGHTS with the bytes of
the frame that announces them. Errors travel as ``Problem`` and come back as the typed error of the same code.
Threading: values only.
"""

from enum import IntEnum, unique
from typing import Final

import msgspec

from blockyard.core import errors
from blockyard.core.errors import BlockyardError

LENGTH_BYTES: Final = 4


@unique
class FrameKind(IntEnum):
    """What a frame carries."""

    REQUEST = 0
    REPLY = 1
    ERROR = 2
    PUSH = 3


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """One frame; the body is decoded by the channel that knows its type."""

    version: int
    kind: FrameKind
    call: int
    body: msgspec.Raw


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A typed error on the wire."""

    code: str
    detail: str = ""
    fields: dict[str, str | int | float] = {}


def _error_types() -> dict[str, type[BlockyardError]]:
    found: dict[str, type[BlockyardError]] = {}
    waiting: list[type[BlockyardError]] = [BlockyardError]
    while waiting:
        kind = waiting.pop()
        found[kind.code] = kind
        waiting.extend(kind.__subclasses__())
    return found


_ERROR_TYPES: Final = _error_types()


def problem_of(error: BlockyardError) -> Problem:
    """Wire form of a typed error."""
    return Problem(code=error.code, detail=error.detail, fields=error.fields)


def error_of(problem: Problem) -> BlockyardError:
    """Typed error of a wire problem; a code unknown here becomes the root type, its code kept as a field."""
    kind = _ERROR_TYPES.get(problem.code)
    if kind is None:
        return errors.BlockyardError(problem.detail, code=problem.code, **problem.fields)
    return kind(problem.detail, **problem.fields)
