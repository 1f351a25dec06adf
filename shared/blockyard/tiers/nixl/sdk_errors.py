"""What the SDK raises, told from what we raise.

Threading: values and pure functions.
"""

from typing import Final

import nixl_cu12._bindings as _bindings

NIXL_ERRORS: Final = tuple(
    kind
    for name, kind in vars(_bindings).items()
    if name.startswith("nixl") and name.endswith("Error") and issubclass(kind, Exception)
)
"""All exceptions of the SDK; they have no common base."""


def reason(error: Exception) -> str:
    """An error of the SDK in words; its messages alone seldom say what went wrong."""
    return f"{type(error).__name__}: {error}"
