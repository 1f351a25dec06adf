"""Where settings come from: environment over YAML file over defaults, read once at start.

``BLOCKYARD_G3__CAPACITY=64GiB`` in the environment (in upper or lower case), or ``g3: {capacity: 64GiB}`` in the file
named by ``BLOCKYARD_CONFIG``. Unknown keys are refused, the nearest known one named. What client libraries would read
by themselves (accounts of a cloud, proxies, options of traces) is taken away from them by ``shield_environment``: a
setting comes from here or does not exist.
Threading: none; used at start. Nothing else in the project reads the environment, but ``health_check``: one variable.
"""

import difflib
import os
from collections.abc import Mapping, MutableMapping
from typing import Final

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from blockyard.core.errors import ConfigurationError
from blockyard.runtime.setting_values import complaint
from blockyard.runtime.setting_variables import ENV_CONFIG, ENV_PREFIX, ENV_SEPARATOR, is_service_link, own_variables
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.settings_file import read_file

_FOREIGN_PREFIXES: Final = ("AWS_", "OTEL_")
_FOREIGN_NAMES: Final = ("http_proxy", "https_proxy", "all_proxy")


def load_settings(environ: Mapping[str, str] | None = None) -> NodeSettings:
    """Read the settings of this process.

    Args:
        environ: environment to read; the process's own by default.

    Raises:
        ConfigurationError: a key is unknown or a value wrong; names the key and, if near, the known one.
    """
    env = os.environ if environ is None else environ
    variables = own_variables(env)
    _, file = variables.pop(ENV_CONFIG, ("", ""))
    tree = _from_file(file) if file else {}
    for known, (name, value) in variables.items():
        path = _path_of(known)
        _refuse_unknown(path, name)
        section, key = path
        tree.setdefault(section, {})[key] = value
    try:
        return NodeSettings.model_validate(tree)
    except ValidationError as error:
        raise _configuration_error(error) from None


def environment_of(settings: NodeSettings) -> dict[str, str]:
    """Environment variables that reproduce ``settings`` in a child process (secrets included)."""
    env: dict[str, str] = {}
    for section_name in NodeSettings.model_fields:
        section = getattr(settings, section_name)
        for name in section.model_fields_set:
            value = getattr(section, name)
            if value is None:
                continue
            text = value.get_secret_value() if isinstance(value, SecretStr) else value
            key = f"{ENV_PREFIX}{section_name}{ENV_SEPARATOR}{name}".upper()
            env[key] = str(int(text)) if isinstance(text, int) else str(text)
    return env


def shield_environment(environ: MutableMapping[str, str] | None = None) -> None:
    """Take away what client libraries would read beside the settings: options of clouds and traces, proxies.

    Args:
        environ: environment to change; the process's own by default.
    """
    env = os.environ if environ is None else environ
    for name in [name for name in env if name.startswith(_FOREIGN_PREFIXES) or name.lower() in _FOREIGN_NAMES]:
        del env[name]


def _from_file(path: str) -> dict[str, dict[str, str]]:
    sections = read_file(path)
    for section, body in sections.items():
        _refuse_unknown((section,), section)
        for name in body:
            _refuse_unknown((section, name), f"{section}.{name}")
    # Where nothing is written behind a key, its default holds.
    return {
        section: {key: text for key, text in body.items() if text is not None} for section, body in sections.items()
    }


def _path_of(name: str) -> tuple[str, ...]:
    return tuple(name[len(ENV_PREFIX) :].lower().split(ENV_SEPARATOR))


def _known_paths() -> set[tuple[str, ...]]:
    paths: set[tuple[str, ...]] = set()
    for section in NodeSettings.model_fields:
        paths.add((section,))
        paths.update((section, name) for name in _fields(section))
    return paths


def _refuse_unknown(path: tuple[str, ...], name: str) -> None:
    known = _known_paths()
    from_env = name.upper().startswith(ENV_PREFIX)
    if path in known and not (from_env and len(path) == 1):
        return
    if from_env and is_service_link(name):
        raise ConfigurationError(
            "not a setting, but what Kubernetes tells of a service whose name begins with blockyard: "
            "set enableServiceLinks: false in the spec of the pod",
            key=name,
        )
    # Compared without the prefix, which would make everything look alike.
    spelled = {
        ENV_SEPARATOR.join(item).upper() if from_env else ".".join(item): item
        for item in known
        if len(item) == 2 or not from_env
    }
    wanted = name.upper().removeprefix(ENV_PREFIX) if from_env else name
    near = difflib.get_close_matches(wanted, spelled, n=1, cutoff=0.5)
    hint = {"nearest": (ENV_PREFIX if from_env else "") + near[0]} if near else {}
    raise ConfigurationError("unknown setting", key=name, **hint)


def _configuration_error(error: ValidationError) -> ConfigurationError:
    first = error.errors()[0]
    section, *names = (str(part) for part in first["loc"])
    field = _fields(section)[names[0]] if names else None
    return ConfigurationError(f"wrong value: {complaint(first, field)}", key=".".join((section, *names)))


def _fields(section: str) -> dict[str, FieldInfo]:
    annotation = NodeSettings.model_fields[section].annotation
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        raise TypeError(f"{section} is no section")
    return annotation.model_fields
