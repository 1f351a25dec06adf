"""Everything that a pool or another structure of the kernel knows, as a value: what a refused call must not change."""

from array import array
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Any

import numpy as np

from blockyard.core.pool import BlockPool


def pool_state(pool: BlockPool) -> dict[str, object]:
    """Rows, names, orders and attachments of a pool."""
    table = pool._table
    return {
        "states": bytes(table.states.column),
        "references": table.refs.column.tolist(),
        "flags": bytes(table.flags.column),
        "generations": table.generations.column.tolist(),
        "later grants": dict(table.generations.latest),
        "index": {group: dict(index) for group, index in table.names.index.items()},
        "facts": pool.registered(),
        "primaries": dict(table.primaries),
        "free": list(table.free),
        "order": list(table.policy),
        "ready": list(table.doomed_ready),
        "attached": {key: dict(kinds) for key, kinds in table.registry._attached.items()},
    }


def state_of(thing: Any) -> object:
    """All slots and attributes of a structure, as deep as they are plain values or structures of this package."""
    if isinstance(thing, (array, np.ndarray)):
        return thing.tolist()
    if isinstance(thing, Mapping):
        return [(state_of(key), state_of(value)) for key, value in thing.items()]
    if isinstance(thing, (list, tuple, deque)):
        return [state_of(value) for value in thing]
    if isinstance(thing, (set, frozenset)):
        return sorted(map(repr, thing))
    if isinstance(thing, Enum) or not type(thing).__module__.startswith("blockyard"):
        return thing
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    names += vars(thing) if hasattr(thing, "__dict__") else []
    return {name: state_of(getattr(thing, name)) for name in names if hasattr(thing, name)}
