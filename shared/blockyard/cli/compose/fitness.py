"""Whether a stack is fit for a proof run: it has not worked yet, and the sizes of its tiers let every phase show what
it should.

The nodes are asked, not the files: what runs decides.
Threading: one event loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, final

import httpx
import msgspec

from blockyard.cli.demo_plan import DemoPlan, Requests
from blockyard.cli.engine_link import EngineLink
from blockyard.cli.failures import StackNotFreshError
from blockyard.cli.venue import VenueNode
from blockyard.connectors.mock.commands import Replay
from blockyard.connectors.mock.trace import load_trace
from blockyard.core.errors import ConfigurationError, ServerStartError
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import G4Section

_G2_KEY: Final = "BLOCKYARD_G2__CAPACITY"
_G3_KEY: Final = "BLOCKYARD_G3__CAPACITY"
_Reply = TypeVar("_Reply")


class _Tier(msgspec.Struct, frozen=True):
    tier: str
    capacity_blocks: int | None
    registered_blocks: int
    block_bytes: int


class _Tiers(msgspec.Struct, frozen=True):
    tiers: list[_Tier]

    def of(self, name: str) -> _Tier | None:
        return next((tier for tier in self.tiers if tier.tier == name), None)


class _Engine(msgspec.Struct, frozen=True):
    engine: str
    blocks: int


class _Engines(msgspec.Struct, frozen=True):
    engines: list[_Engine]


@final
@dataclass(frozen=True, slots=True)
class SizeBounds:
    """Sizes, in blocks, between which a plan shows what it should."""

    least_g1: int
    """The largest requests that an engine serves at a time."""
    least_g2: int
    """What is served again from host memory."""
    most_g2: int | None
    """What is computed after the older requests: it pushes them out, so that they come from disk. None where what comes
    from disk after the restart is enough."""
    least_g3: int
    """The older requests and all that is computed after them."""

    @classmethod
    def of(cls, plan: DemoPlan) -> "SizeBounds":
        """Bounds of a plan."""
        trace = load_trace()

        def blocks(first: int, end: int) -> int:
            return len({block for request in trace[first:end] for block in request.blocks})

        end = _end(plan.compute)
        largest = sorted(len(request.blocks) for request in trace[plan.compute.first : end])
        enough_without = blocks(plan.warm.first, _end(plan.warm)) >= plan.min_verified_blocks
        return cls(
            least_g1=sum(largest[-Replay().concurrency :]),
            least_g2=blocks(plan.recent.first, _end(plan.recent)),
            most_g2=None if enough_without else blocks(_end(plan.older), end),
            least_g3=blocks(plan.older.first, end),
        )


async def require_fitting(plan: DemoPlan, http: httpx.AsyncClient, nodes: Sequence[VenueNode]) -> None:
    """See that tiers and engines are neither too small nor too large for a plan.

    Raises:
        ConfigurationError: names the setting to change, and how.
        ServerStartError: a node does not answer.
    """
    bounds = SizeBounds.of(plan)
    for node in nodes:
        tiers = await _ask(http, node, "/v1/tiers", _Tiers)
        _require_tier(node, tiers, "g2", _G2_KEY, bounds.least_g2, bounds.most_g2)
        _require_tier(node, tiers, "g3", _G3_KEY, bounds.least_g3, None)
        if tiers.of("g4") is None:
            raise ConfigurationError("the run needs the object store", key="BLOCKYARD_G4__ENABLED", node=node.name)
        for engine in (await _ask(http, node, "/v1/engines", _Engines)).engines:
            if engine.blocks < bounds.least_g1:
                raise ConfigurationError(
                    f"the engine has memory for {engine.blocks} blocks; the run needs {bounds.least_g1} or more",
                    key="--blocks of the engine (ENGINE_BLOCKS)",
                    engine=engine.engine,
                )


async def require_fresh(http: httpx.AsyncClient, nodes: Sequence[VenueNode], store: G4Section) -> None:
    """See that no block is anywhere yet, and that no engine has served a request by itself.

    Raises:
        StackNotFreshError: says what is there already.
        ServerStartError: a node does not answer.
    """
    # Loaded here, because its client library takes long to load: the start would wait for it.
    from blockyard.cli.pack_damage import PackVandal

    engines = [node.engine for node in nodes if node.engine is not None]
    for engine in engines:
        # Asked first: a replay that goes on is not ours to end.
        await engine.stats()
        _require_unused(engine)
    for engine in engines:
        # Ends a replay that has not begun yet.
        await engine.reset()
        _require_unused(engine)
    for node in nodes:
        for tier in (await _ask(http, node, "/v1/tiers", _Tiers)).tiers:
            if tier.registered_blocks:
                raise StackNotFreshError(
                    "a tier holds blocks before the run", node=node.name, tier=tier.tier, blocks=tier.registered_blocks
                )
    if stored := await PackVandal(store).stored_bytes():
        raise StackNotFreshError("the object store holds blocks before the run", bucket=store.bucket, bytes=stored)


def _require_unused(engine: EngineLink) -> None:
    if served := engine.latest.requests:
        raise StackNotFreshError(
            "an engine has served requests before the run: it was started with --replay, or used",
            engine=engine.name,
            requests=served,
        )


def _require_tier(node: VenueNode, tiers: _Tiers, name: str, key: str, least: int, most: int | None) -> None:
    tier = tiers.of(name)
    if tier is None or tier.capacity_blocks is None:
        raise ConfigurationError(f"the run needs {name.upper()}", key=key, node=node.name)
    if tier.capacity_blocks < least or (most is not None and tier.capacity_blocks > most):
        upper = "or more" if most is None else f"to {most * tier.block_bytes}"
        raise ConfigurationError(
            f"{name.upper()} has room for {tier.capacity_blocks} blocks, "
            f"{tier.capacity_blocks * tier.block_bytes} bytes; the run needs {least * tier.block_bytes} {upper}",
            key=key,
            node=node.name,
        )


def _end(requests: Requests) -> int:
    return requests.first + requests.count


async def _ask(http: httpx.AsyncClient, node: VenueNode, path: str, kind: type[_Reply]) -> _Reply:
    manager = next(address for address in node.addresses() if address.service is ServiceName.BLOCK_MANAGER)
    try:
        answer = await http.get(f"{manager.url}{path}")
        answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=kind)
    except (httpx.HTTPError, msgspec.MsgspecError) as error:
        reason = str(error) or type(error).__name__  # a timeout says nothing of itself
        raise ServerStartError(
            f"no proper answer from {manager.url}{path}: {reason}", server=f"block-manager-{node.name}"
        ) from None
