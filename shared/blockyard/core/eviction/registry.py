"""Eviction policies by name: those of this package, and those that other packages offer.

A package offers a policy as an entry point of the group ``blockyard.eviction_policies`` that names a ``PolicyFactory``,
which a policy class is. Nothing is imported before it is wanted. A name of this package cannot be taken by another.
Threading: pure functions; what is installed does not change while a process runs.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from blockyard.core.errors import ConfigurationError
from blockyard.core.eviction.base import PolicyFactory

GROUP: Final = "blockyard.eviction_policies"
"""Entry point group of other packages."""
_PLACES: Final = {
    "arc": "arc:ArcPolicy",
    "fifo": "fifo:FifoPolicy",
    "lineage": "lineage:LineagePolicy",
    "lineage_fifo": "lineage:LineageFifoPolicy",
    "lru": "lru:LruPolicy",
    "lru2": "lru2:Lru2Policy",
    "multi_lru": "multi_lru:MultiLruPolicy",
    "s3_fifo": "s3_fifo:S3FifoPolicy",
    "tide": "tide:TidePolicy",
}


def known_policies() -> tuple[str, ...]:
    """Names that can be chosen here, in alphabetical order."""
    return tuple(sorted({*_PLACES, *(entry.name for entry in entry_points(group=GROUP))}))


def policy_factory(name: str) -> PolicyFactory:
    """What makes the policy of this name for a table.

    Raises:
        ConfigurationError: no policy has the name; two packages offer it; or it cannot be imported.
    """
    entry = _entry(name)
    try:
        factory = entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            "the eviction policy cannot be imported", policy=name, place=entry.value, reason=str(error)
        ) from error
    if not callable(factory):
        raise ConfigurationError("the eviction policy cannot be made", policy=name, place=entry.value)
    return cast("PolicyFactory", factory)


def _entry(name: str) -> EntryPoint:
    if name in _PLACES:
        return EntryPoint(name, f"{__package__}.{_PLACES[name]}", GROUP)
    offered = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
    if len(offered) > 1:
        raise ConfigurationError("two packages offer this eviction policy", policy=name, places=", ".join(offered))
    if not offered:
        raise ConfigurationError("no eviction policy has this name", policy=name, known=", ".join(known_policies()))
    return next(iter(offered.values()))
