"""What an operator may set for the connector, in ``kv_connector_extra_config`` of the engine.

Invariants: an unknown key that begins with ``blockyard``, however it is written, is refused with the nearest known one,
so no setting is silently without effect; keys of others are theirs. Threading: frozen values.
"""

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, final

from blockyard.core.errors import ConfigurationError
from blockyard.core.vocabulary import Executor
from blockyard.runtime.rpc.unix_socket import MAX_PATH_BYTES

PREFIX: Final = "blockyard."
REQUEST_KEY: Final = "blockyard"
"""In the ``kv_transfer_params`` of a request; the value ``off`` keeps the request out of the lower tiers."""
_LONGEST_MS: Final = 3_600_000
LONGEST_NAME: Final = 128
"""Of an engine, as the node takes it."""
_LONGEST_TEXT: Final = 1_024
"""Names of models are often paths."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorSettings:
    """Settings of one engine, by the names they have without their prefix."""

    socket: Path
    """Where the block-manager of this node serves engines."""
    enabled: bool = True
    """Whether the connector does anything at all."""
    block_tokens: int = 512
    """Tokens of a block, as the node has them; a whole number of engine blocks."""
    executor: Executor | None = None
    """Who copies; left out, the platform decides: ``mapped`` on CPU, ``engine`` on accelerators."""
    lookup_wait_ms: int = 100
    """How long a request waits for the answer of its lookup before it is computed."""
    load_timeout_ms: int = 5_000
    """How long a load may take before its request is computed."""
    weigh_loads: bool = True
    """Leave out loads that take longer than computing, as measured; false loads whatever can be restored."""
    hold_ms: int = 500
    """How long blocks of a finished request may be kept for their stores; 0 = not at all."""
    model: str = ""
    """Name of the model in the identity; by default as the engine names it."""
    weights_version: str = ""
    """Version of the weights in the identity; by default the revision that the engine loads."""
    name: str = ""
    """Name of the engine at the node; by default the engine's own id."""


def connector_settings(given: Mapping[str, Any]) -> ConnectorSettings:
    """Read the settings among ``given``.

    Raises:
        ConfigurationError: a key is unknown or missing, or a value is of the wrong kind.
    """
    known = {PREFIX + item.name: item.name for item in fields(ConnectorSettings)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        if not str(key).casefold().startswith(REQUEST_KEY):
            continue
        name = known.get(key)
        if name is None:
            near = difflib.get_close_matches(str(key).casefold(), known, n=1, cutoff=0.0)
            raise ConfigurationError(f"there is no such setting; the nearest is {near[0]}", setting=str(key))
        values[name] = _READERS[name](key, value)
    if "socket" not in values:
        if values.get("enabled", True):
            raise ConfigurationError(
                "the engine must know where its node is: the path of the socket of its block-manager is needed",
                setting=PREFIX + "socket",
            )
        values["socket"] = Path()
    return ConnectorSettings(**values)


def opted_out(parameters: object) -> bool:
    """Whether a request asks not to be served from, nor stored in, the lower tiers.

    What a client sends in another shape asks for nothing of ours; any word but "on" for our key means off.
    """
    if not isinstance(parameters, Mapping) or REQUEST_KEY not in parameters:
        return False
    return parameters[REQUEST_KEY] not in (True, "on")


def _text(longest: int) -> Callable[[str, Any], str]:
    def read(key: str, value: Any) -> str:
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise ConfigurationError("a printable text is needed", setting=key)
        if len(value) > longest:
            raise ConfigurationError("a shorter text is needed", setting=key, characters=len(value), limit=longest)
        return value

    return read


def _socket(key: str, value: Any) -> Path:
    path = Path(value if isinstance(value, Path) else _text(_LONGEST_TEXT)(key, value))
    if not path.is_absolute():
        raise ConfigurationError("an absolute path is needed", setting=key, given=str(path))
    if (size := len(os.fsencode(path))) > MAX_PATH_BYTES:
        raise ConfigurationError(
            "the system takes no socket with a path this long: give the node a folder with a shorter one",
            setting=key,
            given=str(path),
            bytes=size,
            limit=MAX_PATH_BYTES,
        )
    return path


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError("true or false is needed", setting=key, given=str(value))
    return value


def _executor(key: str, value: Any) -> Executor:
    try:
        return Executor(value)
    except ValueError:
        raise ConfigurationError("no such executor", setting=key, given=str(value), known=", ".join(Executor)) from None


def _number(lowest: int, highest: int) -> Callable[[str, Any], int]:
    def read(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise ConfigurationError(
                "a whole number within limits is needed", setting=key, given=str(value), lowest=lowest, highest=highest
            )
        return value

    return read


_READERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "socket": _socket,
    "enabled": _flag,
    "block_tokens": _number(1, 1 << 20),
    "executor": _executor,
    "lookup_wait_ms": _number(1, _LONGEST_MS),
    "load_timeout_ms": _number(1, _LONGEST_MS),
    "weigh_loads": _flag,
    "hold_ms": _number(0, _LONGEST_MS),
    "model": _text(_LONGEST_TEXT),
    "weights_version": _text(_LONGEST_TEXT),
    "name": _text(LONGEST_NAME),
}
