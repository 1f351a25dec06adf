"""Numbers, texts and digests as callers give them, checked before anything is computed from them.

What is no integer (a float, a text, a truth value) would otherwise become part of a name, or fail half-way.
Threading: pure functions.
"""

from typing import Final

from blockyard.core.errors import RequestError

MASK_64: Final = 2**64 - 1


def is_whole(value: object, least: int = 0, most: int = MASK_64) -> bool:
    """Whether a value is an integer within these limits; truth values are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_some_whole(value: object) -> bool:
    """Whether a value is an integer, of either sign; truth values are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_time(value: object, most_seconds: float) -> bool:
    """Whether a value is a number of seconds above zero and within this limit; truth values are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= most_seconds


def require_whole(what: str, value: object, least: int = 0, most: int = MASK_64) -> None:
    """Refuse a value that is no integer within these limits; ``what`` says in the error which one.

    Raises:
        RequestError: it is none.
    """
    if not is_whole(value, least, most):
        raise RequestError("not an integer within its limits", what=what, value=repr(value), least=least, most=most)


def require_bytes(what: str, value: object, length: int | None = None) -> None:
    """Refuse a value that is no byte string of this length, or of any.

    Raises:
        RequestError: it is none.
    """
    if not isinstance(value, bytes) or (length is not None and len(value) != length):
        wanted = "any" if length is None else length
        given = len(value) if isinstance(value, bytes) else -1
        raise RequestError("not a byte string", what=what, type=type(value).__name__, length=given, wanted=wanted)


def require_kind(what: str, value: object, kind: type) -> None:
    """Refuse a value of another type, such as a word in the place of an enum.

    Raises:
        RequestError: it is one.
    """
    if not isinstance(value, kind):
        raise RequestError("of another type", what=what, type=type(value).__name__, wanted=kind.__name__)
