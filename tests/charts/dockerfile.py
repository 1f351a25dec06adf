"""What the images say about their processes: variables and entry points, read from the Dockerfile.

Only what the tests need: stages, ``ENV`` with ``name=value`` words, ``ENTRYPOINT`` and ``USER``.
Threading: none.
"""

import json
import shlex
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from tests.architecture.doc_tables import ROOT

DOCKERFILE: Final = ROOT / "Dockerfile"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage, with what it has from the stages below it."""

    environment: dict[str, str] = field(default_factory=dict)
    entry_point: tuple[str, ...] = ()
    user: str = ""
    exposed: tuple[int, ...] = ()


@cache
def stages() -> dict[str, Stage]:
    """All stages by name."""
    found: dict[str, Stage] = {}
    name = ""
    for word, rest in _instructions():
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = found.get(base, Stage())
        elif word == "ENV":
            added = dict(part.split("=", 1) for part in shlex.split(rest))
            found[name] = replace(found[name], environment=found[name].environment | added)
        elif word == "ENTRYPOINT":
            found[name] = replace(found[name], entry_point=tuple(json.loads(rest)))
        elif word == "USER":
            found[name] = replace(found[name], user=rest)
        elif word == "EXPOSE":
            found[name] = replace(found[name], exposed=tuple(int(port) for port in rest.split()))
    return found


def _instructions() -> list[tuple[str, str]]:
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    words = [line.strip().partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in words]
