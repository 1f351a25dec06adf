"""The connector as vLLM loads it: ``kv_connector_module_path = blockyard.connectors.vllm.connector``.

It passes every call on to the half that this process has, and stands between the engine and our faults: a fault of the
scheduler half is logged once, and from then on the connector does nothing but tell the engine the ends that it awaits.
A fault of a rank half is logged once, too; the rank goes on to echo ends, and the call is tried again in the next step.
Settings: see ``ConnectorSettings``. Needs ``kv_load_failure_policy = recompute``.
Threading: the engine's scheduler thread or its worker thread.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole, SupportsHMA

from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.vllm import layout
from blockyard.connectors.vllm.block_tables import BlockNumbers
from blockyard.connectors.vllm.metadata import BlockyardMetadata, BlockyardWorkerMetadata
from blockyard.connectors.vllm.node_calls import NodeCalls, ThreadedCalls
from blockyard.connectors.vllm.rank_half import RankHalf
from blockyard.connectors.vllm.scheduler_half import SchedulerHalf
from blockyard.connectors.vllm.settings import ConnectorSettings, connector_settings
from blockyard.connectors.vllm.statistics import BlockyardPromMetrics, BlockyardStats
from blockyard.connectors.vllm.step_plan import NOTHING, StepPlan
from blockyard.core.vocabulary import Executor, Tier

try:  # since 0.32: who supplied the tokens of a hit
    from vllm.v1.metrics.cache_hit_source import CacheHitSource
except ImportError:  # pragma: no cover - older engines do not ask
    CacheHitSource = None

R = TypeVar("R")
_log: Final = logging.getLogger("vllm.blockyard")


class BlockyardConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]  # the engine ships no types here
    """KV blocks of this engine in the tiers of its node."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        """Make the half for this role.

        Raises:
            ConfigurationError: a setting is wrong, or the engine has an option that the connector cannot serve.
        """
        super().__init__(vllm_config, role, kv_cache_config)
        self.settings: ConnectorSettings = connector_settings(vllm_config.kv_transfer_config.kv_connector_extra_config)
        self._scheduler: SchedulerHalf | None = None
        self._rank: RankHalf | None = None
        self._broken = False
        self._rank_failed = False
        if not self.settings.enabled:
            return
        layout.check_engine(vllm_config, self.settings)
        if role == KVConnectorRole.SCHEDULER:
            described = layout.description(vllm_config, kv_cache_config, self.settings)
            guards = EngineGuards(described.blocks)
            facts = layout.engine_facts(vllm_config, kv_cache_config, self.settings)
            calls = self._open_calls(described, guards)
            copies = described.executor is Executor.ENGINE
            self._scheduler = SchedulerHalf(self.settings, facts, guards, calls, copies=copies)
        else:
            self._rank = RankHalf(vllm_config, kv_cache_config, self.settings, vllm_config.parallel_config.rank)

    def _open_calls(self, described: Any, guards: EngineGuards) -> NodeCalls:
        return ThreadedCalls(self.settings.socket, described, guards)

    @property
    def requires_kv_delivery(self) -> bool:
        """A store that does not happen is a miss later on, nothing worse."""
        return False

    # --- scheduler half -----------------------------------------------------------------------------------------------
    def _ask(self, call: Callable[[SchedulerHalf], R], default: R) -> R:
        half = self._scheduler
        if half is None or self._broken:
            return default
        try:
            return call(half)
        # The last frame before the engine, which must go on whatever is wrong with us.
        except Exception:  # noqa: BLE001
            self._broken = True
            _log.exception("the connector is at fault and stays out of the way from now on; requests are computed")
            try:
                half.give_up()
            except Exception:  # noqa: BLE001 - the same frame: the engine goes on
                _log.exception("the connector cannot even give up")
            return default

    def _last_ends(self, half: SchedulerHalf) -> StepPlan:
        try:
            return half.last_ends()
        except Exception:  # noqa: BLE001 - the same frame: the engine goes on
            _log.exception("the connector cannot tell its last ends")
            return NOTHING

    def on_new_request(self, request: Any) -> None:
        """A request arrived."""
        self._ask(lambda half: half.on_new_request(request), None)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Tokens to be loaded beyond those that the engine holds; None while that is not known."""
        nothing: tuple[int | None, bool] = (0, False)
        return self._ask(lambda half: half.matched_tokens(request, num_computed_tokens), nothing)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The request has its blocks."""
        given = tuple(BlockNumbers(group) for group in blocks.blocks)
        self._ask(lambda half: half.allocated(request, given, num_external_tokens), None)

    def get_external_cache_hit_sources(self, request: Any, num_external_tokens: int) -> Any:
        """Where the tokens of a hit come from, in the engine's words."""
        if not num_external_tokens:
            return {}
        source = self._ask(lambda half: half.slowest_source(request.request_id), Tier.G2)
        words = {Tier.G2: CacheHitSource.HOST, Tier.G3: CacheHitSource.DISK}
        return {words.get(source, CacheHitSource.EXTERNAL_UNSPECIFIED): num_external_tokens}

    def build_connector_meta(self, scheduler_output: Any) -> BlockyardMetadata:
        """What the ranks have to know in this step."""
        if self._scheduler is None:
            return BlockyardMetadata()
        plan = self._ask(lambda half: half.plan_step(scheduler_output), None)
        return BlockyardMetadata(self._last_ends(self._scheduler) if plan is None else plan)

    def update_connector_output(self, connector_output: Any) -> None:
        """What the ranks said."""
        meta = connector_output.kv_connector_worker_meta
        report = meta.report if isinstance(meta, BlockyardWorkerMetadata) else None
        sent = set(connector_output.finished_sending or ())
        received = set(connector_output.finished_recving or ())
        self._ask(lambda half: half.step_ended(report, sent, received), None)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """A request of an engine with one KV group finished."""
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """A request finished; whether its blocks are kept until it is reported sent."""
        return self._ask(lambda half: half.finished(request.request_id), default=False), None

    def take_events(self) -> Iterable[Any]:
        """Nothing: what the engine holds, the engine itself publishes."""
        return ()

    def has_pending_push_work(self) -> bool:
        """Whether the engine has to go on stepping."""
        return self._scheduler is not None and not self._broken and self._scheduler.busy

    def reset_cache(self) -> bool | None:
        """The engine dropped its prefix cache."""
        self._ask(lambda half: half.reset(), None)
        return True

    # --- rank half ----------------------------------------------------------------------------------------------------
    def _ask_rank(self, call: Callable[[RankHalf], R]) -> R | None:
        if self._rank is None:
            return None
        try:
            return call(self._rank)
        # The last frame before the engine, as for the scheduler half. Once: not in every step.
        except Exception:  # noqa: BLE001
            if not self._rank_failed:
                self._rank_failed = True
                _log.exception("the rank's half of the connector is at fault; what it was to do is a miss")
            return None

    def get_mem_pool_context(self) -> AbstractContextManager[Any] | None:
        """Context in which the KV cache is allocated."""
        return None if self._rank is None else self._rank.allocation()

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """The KV cache of this rank."""
        if self._rank is not None:
            self._rank.register(kv_caches)

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        """The first call of every step, before anything is written."""
        if isinstance(kv_connector_metadata, BlockyardMetadata):
            plan = kv_connector_metadata.plan
            self._ask_rank(lambda rank: rank.step_begins(plan))

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Ranks that copy by themselves begin loads here; they run beside the steps, as all loads do."""
        self._ask_rank(lambda rank: rank.loads_begin(self._plan()))

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: a request is scheduled when its load has ended."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing: rows are stored when they are complete in all layers."""

    def wait_for_save(self) -> None:
        """The step has written all that it writes."""
        self._ask_rank(lambda rank: rank.step_ended(self._plan()))

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """Ends for the engine: requests whose stores, and whose loads, are over."""
        plan = self._plan()
        return set(plan.released), set(plan.received)

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        """The same, with those loads that failed as a whole."""
        results = super().get_transfer_results(finished_req_ids)
        results.failed_recving = set(self._plan().failed)
        return results

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Blocks of this step's ended loads that were not loaded."""
        return set(self._plan().invalid)

    def build_connector_worker_meta(self) -> BlockyardWorkerMetadata | None:
        """Steps that this rank has completed."""
        report = self._ask_rank(lambda rank: rank.take_report())
        return None if report is None else BlockyardWorkerMetadata(report)

    def _plan(self) -> StepPlan:
        metadata = self._connector_metadata
        return metadata.plan if isinstance(metadata, BlockyardMetadata) else NOTHING

    # --- both ---------------------------------------------------------------------------------------------------------
    def get_kv_connector_stats(self) -> BlockyardStats | None:
        """Counts since the last call; ranks have none."""
        counts = self._ask(lambda half: half.counts.take(), None)
        return BlockyardStats(data=counts) if counts else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> BlockyardStats:
        """Counts as they arrive in the process that publishes them."""
        return BlockyardStats(data=dict(data or {}))

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> BlockyardPromMetrics:
        """Counters for the engine's metrics page."""
        return BlockyardPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        """End the threads that talk to the node."""
        if self._scheduler is not None:
            self._scheduler.close()
        if self._rank is not None:
            self._rank.close()
