"""The block-manager as a program: command line and settings; the only writer of block metadata on its node."""

from blockyard.core.errors import ConfigurationError
from blockyard.core.pack_plan import PackGeometry
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.setting_values import shown_size
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.supervisor import run_service
from blockyard_block_manager.service import serve


def run() -> int:
    """Run the service; returns the exit code."""
    return run_service(
        serve,
        ServiceName.BLOCK_MANAGER,
        "Manage the block metadata of a node, serve its engines and its REST API, and publish KV events.",
        check=_check,
    )


def _check(settings: NodeSettings) -> None:
    """Refuse a G2 in which the blocks of one object can never be together: G4 would stay empty, without a word."""
    if not settings.g4.enabled:
        return
    block_bytes, pack_bytes = int(settings.node.block_bytes), int(settings.g4.target_bytes)
    g2_blocks = max(1, int(settings.g2.capacity) // block_bytes)
    pack_blocks = PackGeometry(block_bytes, pack_bytes).blocks_per_pack
    if g2_blocks < pack_blocks:
        raise ConfigurationError(
            f"G2 holds {g2_blocks} blocks, and an object of G4 is made of {pack_blocks} that lie in G2: "
            f"raise this to {shown_size(pack_blocks * block_bytes)} at least, or lower g4.target_bytes",
            key="g2.capacity",
        )
