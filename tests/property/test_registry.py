"""Any sequence of calls of two pools: the registry agrees with a list of what is where, after every step."""

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from blockyard.core.errors import BlockNotFoundError
from blockyard.core.registry import AttachmentKindError, BlockRegistry
from blockyard.core.vocabulary import ContentKey, GroupId, Tier
from blockyard.testing.block_model import staged_columns
from blockyard.testing.blocks import clear, key, make_pool

KEYS = [key(name) for name in "abcd"]
TIERS = st.sampled_from([Tier.G2, Tier.G3])
GROUPS = st.integers(0, 1)
SOME = st.lists(st.sampled_from(KEYS), max_size=4)
ROWS = 5


class RegistryMachine(RuleBasedStateMachine):
    """Two pools that share a registry; what they hold is asked of the pools row by row."""

    @initialize()
    def start(self) -> None:
        self.registry = BlockRegistry()
        self.pools = {tier: make_pool(ROWS, tier=tier, registry=self.registry) for tier in (Tier.G2, Tier.G3)}
        self.held = [pool.match([]) for pool in self.pools.values()]
        self.attached: dict[ContentKey, dict[type, list[object]]] = {}
        self.unique: set[tuple[ContentKey, type]] = set()
        self.uses: list[tuple[Tier, int, ContentKey]] = []
        self.heard: list[tuple[Tier, int, ContentKey]] = []
        self.registry.observe(lambda tier, group, keys: self.heard.extend((tier, group, one) for one in keys))

    def present(self) -> set[ContentKey]:
        return {facts.key for pool in self.pools.values() for facts in pool.registered()}

    @rule(tier=TIERS, group=GROUPS, keys=SOME, keep=st.booleans())
    def store(self, tier: Tier, group: int, keys: list[ContentKey], keep: bool) -> None:
        pool = self.pools[tier]
        if len(keys) > pool.available:
            return
        granted = pool.allocate(len(keys)).blocks
        self.forget_absent()
        blocks = granted.stage(staged_columns([(group, one) for one in keys])).register().blocks
        self.uses += [(tier, group, one) for one in keys]
        if keep:
            self.held.append(blocks)
        else:
            blocks.release()

    @rule(tier=TIERS, group=GROUPS, keys=SOME)
    def match(self, tier: Tier, group: int, keys: list[ContentKey]) -> None:
        matched = self.pools[tier].match_scattered(keys, GroupId(group)).blocks
        self.uses += [(tier, group, one) for one in matched.keys]
        self.held.append(matched)

    @rule(data=st.data(), reset=st.booleans())
    def release(self, data: st.DataObject, reset: bool) -> None:
        if self.held:
            blocks = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
            blocks.reset_on_release(reset)
            blocks.release()

    @rule(tier=TIERS, count=st.integers(0, 3))
    def evict(self, tier: Tier, count: int) -> None:
        self.pools[tier].evict(count).release()

    @rule(tier=TIERS, data=st.data())
    def condemn(self, tier: Tier, data: st.DataObject) -> None:
        pool = self.pools[tier]
        if registered := pool.registered():
            facts = data.draw(st.sampled_from(sorted(registered)))
            pool.condemn(facts.block, facts.generation).doomed.release()

    @rule(tier=TIERS)
    def clear_tier(self, tier: Tier) -> None:
        clear(self.pools[tier]).doomed.release()

    @rule(tier=TIERS)
    def drain(self, tier: Tier) -> None:
        self.pools[tier].drain_doomed().release()

    @rule(name=st.sampled_from(KEYS), value=st.sampled_from(["x", "y", 1, 2]), unique=st.booleans())
    def attach(self, name: ContentKey, value: str | int, unique: bool) -> None:
        self.forget_absent()
        values = self.attached.get(name, {}).get(type(value), [])
        try:
            (self.registry.attach_unique if unique else self.registry.attach)(name, value)
        except BlockNotFoundError:
            assert name not in self.present()
            return
        except AttachmentKindError:
            assert values
            assert ((name, type(value)) in self.unique) is not unique
            return
        assert name in self.present()
        assert not values or ((name, type(value)) in self.unique) is unique
        if unique:
            self.unique.add((name, type(value)))
        self.attached.setdefault(name, {})[type(value)] = [value] if unique else [*values, value]

    def forget_absent(self) -> None:
        for name in set(self.attached) - self.present():
            del self.attached[name]
            self.unique = {entry for entry in self.unique if entry[0] != name}

    @invariant()
    def the_registry_says_what_the_pools_hold(self) -> None:
        if not hasattr(self, "registry"):
            return
        self.forget_absent()
        for group in (GroupId(0), GroupId(1)):
            where = {
                tier: {facts.key for facts in pool.registered() if facts.group == group}
                for tier, pool in self.pools.items()
            }
            expected = [tuple(tier for tier, keys in where.items() if one in keys) for one in KEYS]
            assert self.registry.tiers_of(KEYS, group) == expected
        for one in KEYS:
            for kind in (str, int):
                assert list(self.registry.attached(one, kind)) == self.attached.get(one, {}).get(kind, [])
        assert self.heard == self.uses
        for pool in self.pools.values():
            pool.check_integrity()

    def teardown(self) -> None:
        for blocks in getattr(self, "held", []):
            blocks.release()


def test_the_registry_agrees_with_the_pools_after_every_step() -> None:
    print("seed 1")
    machine = settings(
        max_examples=60, stateful_step_count=40, database=None, suppress_health_check=[HealthCheck.too_slow]
    )
    run_state_machine_as_test(seed(1)(RegistryMachine), settings=machine)
