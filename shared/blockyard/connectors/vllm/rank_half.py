"""Rank half of the connector: hands the rank's KV memory to the node, reports steps, and echoes ends to the engine.

With the executors ``mapped`` and ``nixl`` a worker of the node copies, and a rank has nothing to do for a load or a
store but to say when the writes of a step are complete: on CPU they are when the step's hooks run.
Invariants: the engine is told of every end once per rank; a step is reported after its last write.
Threading: the engine's worker thread; the link to the node lives in a thread of its own.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, final

import torch

from blockyard.connectors.client_thread import ClientThread
from blockyard.connectors.rank_link import RankLink
from blockyard.connectors.rank_memory import RankMemory
from blockyard.connectors.vllm import layout
from blockyard.connectors.vllm.memory import SharedKvMemory
from blockyard.connectors.vllm.settings import ConnectorSettings
from blockyard.connectors.vllm.step_plan import StepPlan, StepReport
from blockyard.core.errors import UnsupportedOperationError
from blockyard.core.vocabulary import Executor

_YIELD_SECONDS: Final = 0.0002
"""An engine in one process spins through empty steps while it waits; the thread that it waits for needs to run."""
_log: Final = logging.getLogger(__name__)


@final
class RankHalf:
    """One rank."""

    def __init__(self, config: Any, kv_cache_config: Any, settings: ConnectorSettings, rank: int) -> None:
        """Prepare; the memory is allocated later.

        Raises:
            UnsupportedOperationError: the executor is none that this rank knows.
        """
        executor = layout.executor_of(config, settings)
        if executor is Executor.ENGINE:
            raise UnsupportedOperationError("ranks do not copy by themselves yet", executor=executor.value)
        self._config = config
        self._kv_cache_config = kv_cache_config
        self._settings = settings
        self._rank = rank
        self._memory = SharedKvMemory()
        self._link: ClientThread[RankLink] | None = None
        self._report = StepReport()
        self._began = 0.0

    def allocation(self) -> AbstractContextManager[Any]:
        """Context in which the engine allocates its KV cache."""
        return self._memory

    def register(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        """The KV cache is there: the node may have it.

        Raises:
            LayoutMismatchError: it is none of whole pages, or lies elsewhere.
        """
        regions = layout.regions(self._kv_cache_config, kv_caches, self._memory)
        memory = RankMemory(self._memory.fd, self._memory.memory_bytes, regions)
        engine = layout.engine_id(self._config, self._settings)
        dp_rank = self._config.parallel_config.data_parallel_rank
        self._link = ClientThread(
            lambda: RankLink(self._settings.socket, engine, dp_rank, self._rank, memory, regions),
            f"blockyard-rank-{self._rank}",
        )
        self._link.start()

    def step_begins(self) -> None:
        """A step is about to write."""
        self._began = time.monotonic()

    def step_ended(self, plan: StepPlan) -> None:
        """The step has written all that it writes."""
        if plan.step:
            self._report.completed(plan.step, time.monotonic() - self._began)
        if plan.waiting:
            time.sleep(_YIELD_SECONDS)

    def take_report(self) -> StepReport | None:
        """Steps completed since the last report."""
        if not self._report.ranks:
            return None
        report, self._report = self._report, StepReport()
        return report

    def close(self) -> None:
        """End the link: the node is done with this rank's memory."""
        if self._link is not None and not self._link.stop():
            _log.warning("the link of this rank to the node does not end; it is left behind")
        self._memory.close()
