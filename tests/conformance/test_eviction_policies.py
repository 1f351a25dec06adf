"""Every eviction policy keeps the contract of its port."""

from blockyard.core.eviction.base import EvictionPolicy
from blockyard.core.eviction.lru import LruPolicy
from blockyard.testing.eviction_conformance import EvictionPolicyTests
from blockyard.testing.row_columns import NamedRows


class TestLru(EvictionPolicyTests):
    def make_policy(self, capacity: int) -> EvictionPolicy:
        return LruPolicy(NamedRows(capacity))
