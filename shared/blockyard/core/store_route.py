"""Which way a block of an engine takes down: through G2, or straight to G3 where G2 cannot take it.

::

    rule ALWAYS ──────────────────────────────────────────────► PAST_G2 ─┐
    G2 has a slot for it ─────────────────────────────────────► THROUGH_G2
    beyond the capacity of G2: it would push out its own head ► PAST_G2 ─┤
    slots of G2 come back by themselves, or rule NEVER ───────► WAIT     │
    all other slots of G2 are held ───────────────────────────► PAST_G2 ─┤
                                                                         └─ its parent does not reach G3 first ─► WAIT

Slots are counted from the head of the request on, so the head goes through G2, where the next request finds it soonest.
Slots *in flight* come back with their jobs; *held* ones (leases, staged loads, copies that are read) may stay for as
long as a request runs, and no store waits for that. What goes past G2 obeys the rules of ``core.offload_plan`` like
every other write to G3; here only its order is seen to, since a prefix with a hole serves nobody.
Invariants: THROUGH_G2 is said of no more blocks than G2 has slots for; what is said to be PAST_G2 is closed under
prefixes, given what G3 holds; with the rule NEVER nothing goes past G2.
Threading: pure functions and frozen values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import final

from blockyard.core.block_name import BlockName
from blockyard.core.errors import KernelError
from blockyard.core.vocabulary import ROOT_KEY, ContentKey


@unique
class BypassRule(StrEnum):
    """When blocks go past G2."""

    NEVER = "never"
    WHEN_FULL = "when_full"
    """Where G2 is full of blocks that are held, or smaller than the request."""
    ALWAYS = "always"


@unique
class StoreRoute(StrEnum):
    """Which way one block goes."""

    THROUGH_G2 = "through_g2"
    PAST_G2 = "past_g2"
    WAIT = "wait"
    """Neither now: a slot comes back by itself, or its parent has to reach G3 first."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HostSlots:
    """What the slots of G2 are doing, in blocks.

    Raises:
        KernelError: a negative number, or more than there are.
    """

    capacity: int
    available: int
    """Free, or held by nobody and not to be written first."""
    in_flight: int
    """Jobs hold them, or they are still to be written to G3: they come back by themselves."""

    def __post_init__(self) -> None:
        """Check the sum."""
        if min(self.capacity, self.available, self.in_flight) < 0 or self.available + self.in_flight > self.capacity:
            raise KernelError("slots are available, in flight or held", capacity=self.capacity, free=self.available)


def store_routes(
    names: Sequence[BlockName],
    rule: BypassRule,
    slots: HostSlots,
    in_g3: Callable[[ContentKey], bool],
    *,
    needs_parents: bool = True,
) -> list[StoreRoute]:
    """Choose the way of each block of one request, aligned with ``names``.

    Args:
        names: blocks that neither tier has, parents before their children.
        rule: when blocks go past G2.
        slots: what G2 can take.
        in_g3: whether G3 holds a block, or a copy into it has begun.
        needs_parents: whether a block is of use only with those before it; see ``core.offload_plan``.
    """
    past: set[ContentKey] = set()
    routes: list[StoreRoute] = []
    for number, name in enumerate(names):
        route = _by_slots(number, rule, slots)
        if route is StoreRoute.PAST_G2:
            reached = name.parent == ROOT_KEY or name.parent in past or in_g3(name.parent)
            if reached or not needs_parents:
                past.add(name.key)
            else:
                route = StoreRoute.WAIT
        routes.append(route)
    return routes


def _by_slots(number: int, rule: BypassRule, slots: HostSlots) -> StoreRoute:
    """The way of the block that has so many before it in its request, as far as G2 decides."""
    if rule is BypassRule.ALWAYS:
        return StoreRoute.PAST_G2
    if number < slots.available:
        return StoreRoute.THROUGH_G2
    waits = number < min(slots.capacity, slots.available + slots.in_flight)
    return StoreRoute.WAIT if waits or rule is BypassRule.NEVER else StoreRoute.PAST_G2
