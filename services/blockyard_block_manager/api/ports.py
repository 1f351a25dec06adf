"""What the API asks for: the decisions, the shared index, and the list of nodes.

Threading: one event loop.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from blockyard.wire.events import InstanceRecord
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.remote_index import RemoteIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPorts:
    """Everything that requests may reach."""

    core: NodeCore
    index: RemoteIndex
    list_instances: Callable[[], Awaitable[tuple[InstanceRecord, ...]]]
    """Nodes with a live lease; raises ``UnavailableError`` while the bus is away."""
