"""Forms of single settings: sizes, addresses, folders, credentials.

What a client library, a kernel call or a file system would refuse late, and each in its own way, is refused here, for
all services alike and with the same words at a check and at a start.
Invariants: what is raised never holds the value: it may be a secret.
Threading: pure functions.
"""

import ipaddress
import re
from typing import Annotated, Any, Final
from urllib.parse import parse_qs, urlsplit

from annotated_types import Ge, Le
from pydantic import BeforeValidator, ByteSize
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from blockyard.core.eviction.registry import known_policies

SIZE_EXAMPLE: Final = "64GiB"
NATS_SCHEMES: Final = ("nats", "tls", "ws", "wss")
_SIZE: Final = re.compile(r"(\d+|\d*\.\d+) ?(b|[kmgtpe](i?b)?)?", re.ASCII | re.IGNORECASE)
_HOST_NAME: Final = re.compile(
    r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*\.?", re.ASCII | re.IGNORECASE
)
_MACHINE_NAME: Final = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII
)
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_NUMBERS_ONLY: Final = re.compile(r"[0-9.]+")
_WORD: Final = re.compile(r"[!-~]*")
_LIMITS: Final[dict[type, str]] = {Ge: "ge", Le: "le"}
_UNITS: Final = ((1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def _size_text(value: Any) -> Any:
    plain = value if isinstance(value, int) and not isinstance(value, bool) else None
    if plain is None and not (isinstance(value, str) and _SIZE.fullmatch(value.strip())):
        raise ValueError(f"must be a size like {SIZE_EXAMPLE}, 512MiB or 4096")
    return value if plain is not None else value.strip()


Size = Annotated[ByteSize, BeforeValidator(_size_text)]
"""Number of bytes, in text with a unit."""


def shown_size(value: int) -> str:
    """``value`` with the largest unit that divides it."""
    return next((f"{value // unit}{name}" for unit, name in _UNITS if value and value % unit == 0), str(value))


def require_folder(value: Any) -> Any:
    """Refuse text that names no folder; the empty one would mean where the process happened to start."""
    if isinstance(value, str) and (not value.strip() or not value.isprintable()):
        raise ValueError("must be the path of a folder")
    return value


def require_eviction_policy(value: str) -> str:
    """Refuse a name that no eviction policy has here; nothing is imported for that."""
    known = known_policies()
    if value not in known:
        raise ValueError(f"must be the name of an eviction policy: {', '.join(known)}")
    return value


def require_host(value: str) -> str:
    """Refuse what is neither an IP address nor a host name; an empty one would mean every address of the machine."""
    if not _is_host(value):
        raise ValueError("must be an IP address or a host name, like 127.0.0.1 or ::1")
    return value


def require_machine_name(value: str) -> str:
    """Refuse what a machine of a cluster could not be called; subjects and keys rely on what a name cannot hold."""
    if not _MACHINE_NAME.fullmatch(value):
        raise ValueError(
            "must be a name like node-7 or node-7.example.internal: lower-case letters, digits, - and ., "
            "at most 253, each part beginning and ending with a letter or digit"
        )
    return value


def require_bucket(value: str) -> str:
    """Refuse what S3 takes for no name of a bucket; servers say so late, and each in its own words."""
    if not _BUCKET.fullmatch(value) or ".." in value or _NUMBERS_ONLY.fullmatch(value):
        raise ValueError(
            "must be the name of a bucket: 3 to 63 lower-case letters, digits, - and ., beginning and ending with a "
            "letter or digit, without two dots in a row, and no IP address"
        )
    return value


def require_reachable_host(value: str) -> str:
    """Refuse what names no host that others could connect to; empty means none is named."""
    if value and is_every_address(require_host(value)):
        raise ValueError("must be the address of one host, not every address")
    return value


def is_every_address(host: str) -> bool:
    """Whether ``host`` stands for all addresses of a machine, to be bound but not to be asked."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def require_word(value: str) -> str:
    """Refuse what cannot stand in the head of a request: spaces, control characters, letters beyond ASCII."""
    if not _WORD.fullmatch(value):
        raise ValueError("must be printable ASCII without spaces")
    return value


def require_web_address(value: str) -> str:
    """Refuse what is not the bare address of a web server; returns it without a slash at its end."""
    # The clients meet another kind of text only when they send, and then each in a way of its own.
    if not _is_address(value, ("http", "https")) or not _is_bare(value):
        raise ValueError("must be http://host:port or https://host:port, and nothing behind it")
    return value.rstrip("/")


def require_nats_address(value: str) -> str:
    """Refuse what is no address of a NATS server."""
    if not _is_address(value, NATS_SCHEMES):
        raise ValueError("must be an address like nats://host:4222")
    return value


def require_redis_address(value: str) -> str:
    """Refuse what is no address of a Redis server; the client takes an unknown database for number 0."""
    if not (_is_address(value, ("redis", "rediss")) or _is_socket_address(value)) or not _names_a_database(value):
        raise ValueError("must be an address like redis://host:6379/0, ending in the number of a database")
    return value


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return bool(_HOST_NAME.fullmatch(text)) and not _NUMBERS_ONLY.fullmatch(text)
    return True


def _is_address(text: str, schemes: tuple[str, ...]) -> bool:
    if not _WORD.fullmatch(text):
        return False
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in schemes and _is_host(parts.hostname or "") and port != 0


def _is_bare(url: str) -> bool:
    parts = urlsplit(url)
    return parts.username is None and parts.path in ("", "/") and not (parts.query or parts.fragment)


def _is_socket_address(text: str) -> bool:
    return bool(_WORD.fullmatch(text)) and text.startswith("unix:///")


def _names_a_database(url: str) -> bool:
    parts = urlsplit(url)
    path = "" if parts.scheme == "unix" else parts.path.removeprefix("/")
    databases = [*parse_qs(parts.query, keep_blank_values=True).get("db", []), *([path] if path else [])]
    return all(re.fullmatch("[0-9]{1,5}", name) for name in databases)


def complaint(problem: ErrorDetails, field: FieldInfo | None) -> str:
    """What is wrong with the value of ``field``: what it must be, where that has bounds."""
    message = str(problem["msg"]).removeprefix("Value error, ")
    limits = "" if field is None else range_of(field)
    if field is None or not limits or problem["type"] == "value_error":
        return message
    if field.annotation is ByteSize:
        return f"must be a size like {SIZE_EXAMPLE}, {limits}"
    return f"must be a {'whole ' if field.annotation is int else ''}number {limits}"


def range_of(field: FieldInfo) -> str:
    """Bounds of the numbers that a setting takes, in words; empty where it has none."""
    limits = {type(rule): getattr(rule, _LIMITS[type(rule)]) for rule in field.metadata if type(rule) in _LIMITS}
    shown = {kind: shown_size(limit) if field.annotation is ByteSize else f"{limit}" for kind, limit in limits.items()}
    match shown.get(Ge), shown.get(Le):
        case None, None:
            return ""
        case None, most:
            return f"at most {most}"
        case least, None:
            return f"at least {least}"
        case least, most:
            return f"from {least} to {most}"
