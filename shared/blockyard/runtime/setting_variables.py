"""Names of our variables in the environment, and which of them are set.

Light on purpose: the health check reads one variable every few seconds, without the tree of all settings.
Threading: pure functions.
"""

from collections.abc import Mapping
from typing import Final

from blockyard.core.errors import ConfigurationError

ENV_PREFIX: Final = "BLOCKYARD_"
ENV_CONFIG: Final = "BLOCKYARD_CONFIG"
ENV_SEPARATOR: Final = "__"


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
