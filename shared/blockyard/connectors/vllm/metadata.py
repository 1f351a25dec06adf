"""The engine's envelopes for what travels between the halves of the connector.

Threading: values.
"""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata

from blockyard.connectors.vllm.step_plan import NOTHING, StepPlan, StepReport


@dataclass
class BlockyardMetadata(KVConnectorMetadata):  # type: ignore[misc]  # the engine ships no types here
    """From the scheduler half to each rank."""

    plan: StepPlan = NOTHING


@dataclass
class BlockyardWorkerMetadata(KVConnectorWorkerMetadata):  # type: ignore[misc]  # the engine ships no types here
    """From the ranks to the scheduler half."""

    report: StepReport = field(default_factory=StepReport)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "BlockyardWorkerMetadata":
        """Reports of two ranks as one."""
        if not isinstance(other, BlockyardWorkerMetadata):
            return self
        return BlockyardWorkerMetadata(self.report.joined(other.report))
