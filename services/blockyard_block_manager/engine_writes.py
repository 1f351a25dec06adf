"""Whether anything planned for an earlier connection can still write the memory of engines.

An engine that comes back over a new connection may have lost the old one in the middle of a load. Its node may be the
same life of the block-manager as before, so not only jobs of earlier lives count, but also our own whose mapping is
over because their session ended or a rank was lost.
Threading: called in sections of the event loop of the service.
"""

from blockyard.core.vocabulary import JobKind
from blockyard_block_manager.node_core import NodeCore


def engine_writes_settled(core: NodeCore) -> bool:
    """True when every write into engine memory that is still possible goes by a mapping that counts."""
    living = {session.mapping_number for session in core.sessions}
    return core.recovery.engine_writes_settled and not any(
        opened.order.kind is JobKind.G2_G1 and opened.order.mapping not in living for opened in core.desk.open_orders()
    )
