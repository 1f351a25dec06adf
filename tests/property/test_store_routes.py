"""Random requests and tiers, played out in a model of G2 and G3: no slot is used twice, no prefix in G3 has a hole."""

from hypothesis import given, settings
from hypothesis import strategies as st

from blockyard.core.block_name import BlockName, names_of
from blockyard.core.store_route import BypassRule, HostSlots, StoreRoute, store_routes
from blockyard.core.vocabulary import ROOT_KEY, ContentKey
from blockyard.testing.blocks import chain

RUN = names_of(chain("a", 12))


class Host:
    """G2 slot by slot."""

    def __init__(self, slots: list[str]) -> None:
        self.slots = slots

    def facts(self) -> HostSlots:
        kinds = self.slots
        available = kinds.count("free") + kinds.count("idle")
        return HostSlots(capacity=len(kinds), available=available, in_flight=kinds.count("job"))

    def take(self) -> bool:
        """Put a block of the request into G2; False where it would push out what is held or what it has just put."""
        for kind in ("free", "idle"):
            if kind in self.slots:
                self.slots[self.slots.index(kind)] = "own"
                return True
        return False

    def after_jobs(self) -> "Host":
        return Host(["free" if kind == "job" else kind for kind in self.slots])


def expected(host: Host, rule: BypassRule, number: int, before: list[StoreRoute]) -> StoreRoute:
    """What G2 says to one block, found by trying: now, else once all jobs have ended, else never."""
    if rule is BypassRule.ALWAYS:
        return StoreRoute.PAST_G2
    if host.take():
        return StoreRoute.THROUGH_G2
    if rule is BypassRule.NEVER:
        return StoreRoute.WAIT
    later = host.after_jobs()
    waiting = number - before.count(StoreRoute.THROUGH_G2)
    could = all([later.take() for _ in range(waiting + 1)])
    return StoreRoute.WAIT if could else StoreRoute.PAST_G2


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(["free", "idle", "job", "held"]), max_size=10),
    st.sampled_from(BypassRule),
    st.integers(0, 11),
    st.sets(st.integers(0, 11)),
    st.booleans(),
)
def test_routes_are_those_of_a_model_that_tries_them(
    slots: list[str], rule: BypassRule, first: int, held: set[int], needs_parents: bool
) -> None:
    names = RUN[first:]
    below = {RUN[index].key for index in held}
    routes = store_routes(names, rule, Host(slots).facts(), below.__contains__, needs_parents=needs_parents)
    host, g3 = Host(list(slots)), set(below)
    wanted: list[StoreRoute] = []
    for number, name in enumerate(names):
        by_slots = expected(host, rule, number, wanted)
        wanted.append(by_slots)
        hole = needs_parents and name.parent != ROOT_KEY and name.parent not in g3
        assert routes[number] is (StoreRoute.WAIT if by_slots is StoreRoute.PAST_G2 and hole else by_slots)
        if routes[number] is StoreRoute.PAST_G2:
            g3.add(name.key)
    assert len(routes) == len(names)
    if needs_parents:
        assert closed(names, g3 - below, g3)


def closed(names: tuple[BlockName, ...], written: set[ContentKey], there: set[ContentKey]) -> bool:
    return all(name.parent == ROOT_KEY or name.parent in there for name in names if name.key in written)
