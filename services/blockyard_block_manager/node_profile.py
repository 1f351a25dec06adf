"""Facts of this life of the node that decisions need: who we are, sizes and limits.

Threading: frozen values.
"""

from dataclasses import dataclass

from blockyard.core.eviction.base import PolicyFactory
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.eviction.registry import policy_factory
from blockyard.core.offload_plan import OffloadRules
from blockyard.core.vocabulary import Epoch, NodeName
from blockyard.runtime.settings import NodeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProfile:
    """Identity, geometry and limits of the node."""

    instance: NodeName
    epoch: Epoch
    block_bytes: int
    block_tokens: int
    g3_enabled: bool = True
    g4_enabled: bool = True
    remote_runs: bool = False
    """Whether a remote tier of this node ran when this life began, whatever the settings say now."""
    g2_eviction: PolicyFactory = LruPolicy
    """Makes the order in which blocks leave G2."""
    g3_eviction: PolicyFactory = LruPolicy
    """The same for G3."""
    pack_target_bytes: int = 4 << 20
    tail_idle_seconds: float = 2.0
    max_items: int = 64
    """Blocks per job."""
    store_ttl_ms: int = 30_000
    queue_limit: int = 256
    """Store jobs that wait per worker."""
    backlog_blocks: int = 16_384
    """Blocks of engines that wait for room in G2."""
    g3_queue_blocks: int = 4_096
    """Blocks that wait for free G3 slots."""
    g3_queue_bytes: int = 16 << 30
    """Their bytes."""
    disk_rules: OffloadRules = OffloadRules()
    """Which blocks of G2 are written to G3."""
    g3_open_jobs: int = 8
    """G3 stores under way at once: bounds how much of G2 they pin."""
    g4_open_packs: int = 8
    """Packs under way at once: bounds how much of G2 they pin."""
    shared_catalogue_blocks: int = 262_144
    """Blocks whose presence in the shared store this node has announced."""
    lease_share: float = 0.5
    """Share of a tier that leases may pin."""
    grant_share: float = 0.25
    """Share of G2 that ranks of engines may hold for writing, what waits for dead or frozen ones included."""
    engine_grant_share: float = 0.125
    """Share of G2 that the ranks of one engine may hold for writing."""
    staged_share: float = 0.5
    """Share of G2 that staged loads may pin."""
    max_lease_ms: int = 60_000
    loads_per_session: int = 1_024
    listing_part: int = 512
    """Slots of an inventory that are compared, and blocks of G2 that are offered to lower tiers, in one go."""
    sweep_part: int = 2_048
    """Blocks that were cleared of which the traces are taken away in one section: some milliseconds."""

    @classmethod
    def of(cls, settings: NodeSettings, epoch: Epoch, *, remote_runs: bool) -> "NodeProfile":
        """Profile of a node with these settings.

        Raises:
            ConfigurationError: an eviction policy cannot be imported.
        """
        return cls(
            instance=NodeName(settings.node.name),
            epoch=epoch,
            block_bytes=int(settings.node.block_bytes),
            block_tokens=settings.node.block_tokens,
            g3_enabled=settings.g3.enabled,
            g4_enabled=settings.g4.enabled,
            remote_runs=remote_runs,
            g2_eviction=policy_factory(settings.g2.eviction),
            g3_eviction=policy_factory(settings.g3.eviction),
            pack_target_bytes=int(settings.g4.target_bytes),
            tail_idle_seconds=settings.g4.tail_idle_seconds,
            max_items=settings.jobs.max_items,
            store_ttl_ms=settings.jobs.store_ttl_ms,
            queue_limit=settings.jobs.queue_limit,
            g4_open_packs=settings.g4.max_requests,
            disk_rules=OffloadRules(
                policy=settings.g3.write_policy,
                least_uses=settings.g3.least_uses,
                bytes_per_day=int(settings.g3.bytes_per_day),
            ),
        )
