"""Names of our variables in the environment, and which of them are set.

Light on purpose: the health check reads one variable every few seconds, without the tree of all settings.
Threading: pure functions.
"""

import re
from collections.abc import Mapping
from typing import Final

from blockyard.core.errors import ConfigurationError

ENV_PREFIX: Final = "BLOCKYARD_"
ENV_CONFIG: Final = "BLOCKYARD_CONFIG"
ENV_SEPARATOR: Final = "__"
_SERVICE_LINK: Final = re.compile(
    r"(?:.+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)"
)


def own_variables(env: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Our variables by their upper-case names, each with the name as it is spelled, and its value.

    Raises:
        ConfigurationError: one is set twice, in upper and lower case.
    """
    found: dict[str, tuple[str, str]] = {}
    for name in sorted(env):
        known = name.upper()
        if not known.startswith(ENV_PREFIX):
            continue
        if known in found:
            raise ConfigurationError("set twice, in upper and lower case", key=found[known][0], second=name)
        found[known] = name, env[name]
    return found


def is_service_link(name: str) -> bool:
    """Whether a variable looks like one that Kubernetes adds for a service of the namespace, not like a setting."""
    rest = name.upper().removeprefix(ENV_PREFIX)
    return ENV_SEPARATOR not in rest and _SERVICE_LINK.fullmatch(rest) is not None
