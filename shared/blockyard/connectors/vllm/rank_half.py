"""Rank half of the connector: hands the rank's KV memory to the node, reports steps, and echoes ends to the engine.

With the executors ``mapped`` and ``nixl`` a worker of the node copies, and a rank has nothing to do for a load or a
store but to say when the writes of a step are complete: on CPU they are when the step's hooks run. With ``engine`` it
keeps its memory, gets the node's arena and copies by itself (``engine_copies``).
Invariants: the engine is told of every end once per rank; a step is reported after its last write.
Threading: the engine's worker thread; the link to the node lives in a thread of its own.
"""

import logging
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, final

import torch
from vllm.distributed.kv_transfer import ensure_kv_transfer_shutdown

from blockyard.connectors.client_thread import ClientThread
from blockyard.connectors.rank_link import RankLink
from blockyard.connectors.rank_memory import RankMemory
from blockyard.connectors.vllm import layout
from blockyard.connectors.vllm.kv_pages import KvPages, Regions
from blockyard.connectors.vllm.memory import SharedKvMemory
from blockyard.connectors.vllm.settings import ConnectorSettings
from blockyard.connectors.vllm.step_plan import StepPlan, StepReport
from blockyard.core.errors import BlockyardError, StartupError
from blockyard.core.vocabulary import Executor

if TYPE_CHECKING:
    from blockyard.connectors.vllm.engine_copies import EngineCopies

_YIELD_SECONDS: Final = 0.0002
"""An engine in one process spins through empty steps while it waits; the thread that it waits for needs to run."""
_log: Final = logging.getLogger(__name__)


@final
class RankHalf:
    """One rank."""

    def __init__(self, config: Any, kv_cache_config: Any, settings: ConnectorSettings, rank: int) -> None:
        """Prepare; the memory is allocated later.

        Raises:
            ConfigurationError: what the scheduler half would refuse. Here first: the engine makes its ranks before, and
                where a start fails after that, it keeps them, and gives them to the next start in the process.
        """
        layout.description(config, kv_cache_config, settings)
        self._config = config
        self._kv_cache_config = kv_cache_config
        self._settings = settings
        self._rank = rank
        copies_itself = layout.executor_of(config, settings) is Executor.ENGINE
        self._memory = None if copies_itself else SharedKvMemory()
        self._copies: EngineCopies[Any] | None = None
        self._link: ClientThread[RankLink] | None = None
        self._report = StepReport()
        self._began = 0.0
        self._taken = False
        """Whether an engine has asked where its KV cache is to lie."""

    def allocation(self) -> AbstractContextManager[Any] | None:
        """Context in which the engine allocates its KV cache; None where it allocates as it likes.

        Raises:
            StartupError: this is the rank of an earlier start in the process; it knows nothing of the present one.
        """
        if self._taken:
            raise StartupError(
                "the process still has the rank of an engine that it started before: end that engine, or call "
                "vllm.distributed.kv_transfer.ensure_kv_transfer_shutdown() where its start failed"
            )
        self._taken = True
        return self._memory

    def register(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        """The KV cache is there: the node may have it, or this rank copies it.

        Raises:
            LayoutMismatchError: it is none of whole pages, or lies elsewhere.
            UnsupportedOperationError: this rank has to copy, and there are no copies for its device.
        """
        try:
            self._attach_pages(kv_caches)
        except BlockyardError:
            # The start fails, and the engine would give this rank to the next one in the process.
            ensure_kv_transfer_shutdown()
            raise

    def step_begins(self, plan: StepPlan) -> None:
        """A step is about to write."""
        self._began = time.monotonic()
        if self._copies is not None:
            self._copies.step_begins(plan.copies)

    def loads_begin(self, plan: StepPlan) -> None:
        """Loads of this step may begin."""
        if self._copies is not None:
            self._copies.loads_begin(plan.copies)

    def step_ended(self, plan: StepPlan) -> None:
        """The step has written all that it writes."""
        if plan.step:
            self._report.completed(plan.step, time.monotonic() - self._began)
        if self._copies is not None:
            self._copies.step_ended(plan.copies)
        if plan.waiting:
            time.sleep(_YIELD_SECONDS)

    def take_report(self) -> StepReport | None:
        """Steps and copies completed since the last report."""
        if self._copies is not None:
            self._copies.report(self._report)
        if self._report.is_empty:
            return None
        report, self._report = self._report, StepReport()
        return report

    def close(self) -> None:
        """End the link: the node is done with this rank's memory, or this rank with the node's."""
        if self._link is not None and not self._link.stop():
            _log.warning("the link of this rank to the node does not end; it is left behind")
        if self._copies is not None:
            self._copies.close()
        if self._memory is not None:
            self._memory.close()

    def _attach_pages(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        if self._memory is None:
            pages = KvPages(self._kv_cache_config, kv_caches)
            facts = layout.engine_facts(self._config, self._kv_cache_config, self._settings)
            copies = self._copies = pages.copies(facts, self._rank)
            self._attach(
                None, pages.regions, on_state=copies.attached, on_arena=copies.take_arena, drained=copies.drained
            )
        else:
            regions = layout.regions(self._kv_cache_config, kv_caches, self._memory)
            self._attach(RankMemory(self._memory.fd, self._memory.memory_bytes, regions), regions)

    def _attach(self, memory: RankMemory | None, regions: Regions, **told: Any) -> None:
        engine = layout.engine_id(self._config, self._settings)
        dp_rank, life = layout.dp_rank(self._config), layout.engine_life(self._config)
        self._link = ClientThread(
            lambda: RankLink(self._settings.socket, engine, dp_rank, self._rank, memory, regions, life=life, **told),
            f"blockyard-rank-{self._rank}",
        )
        self._link.start()
