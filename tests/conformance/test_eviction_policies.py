"""Every eviction policy keeps the contract of its port."""

from blockyard.core.eviction.arc import ArcPolicy
from blockyard.core.eviction.base import EvictionPolicy, RowColumns
from blockyard.core.eviction.fifo import FifoPolicy
from blockyard.core.eviction.lineage import LineageFifoPolicy, LineagePolicy
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.eviction.lru2 import Lru2Policy
from blockyard.core.eviction.multi_lru import MultiLruPolicy
from blockyard.core.eviction.s3_fifo import S3FifoPolicy
from blockyard.core.eviction.tide import TidePolicy
from blockyard.testing.eviction_conformance import EvictionPolicyTests


class TestFifo(EvictionPolicyTests):
    def make_policy(self, columns: RowColumns) -> EvictionPolicy:
        return FifoPolicy(columns)


class TestLru(EvictionPolicyTests):
    def make_policy(self, columns: RowColumns) -> EvictionPolicy:
        return LruPolicy(columns)


class TestMultiLru(EvictionPolicyTests):
    def make_policy(self, columns: RowColumns) -> EvictionPolicy:
        return MultiLruPolicy(columns)


class TestLineage(EvictionPolicyTests):
    def make_policy(self, columns: RowColumns) -> EvictionPolicy:
        return LineagePolicy(columns)


class TestLineageFifo(EvictionPolicyTests):
    def make_policy(self, columns: RowColumns) -> EvictionPolicy:
        return LineageFifoPolicy(columns)


class TestLru2(EvictionPolicyTests):
    def make_policy(self, columns: RowColumns) -> EvictionPolicy:
        return Lru2Policy(columns)


class TestArc(EvictionPolicyTests):
    def make_policy(self, columns: RowColumns) -> EvictionPolicy:
        return ArcPolicy(columns)


class TestS3Fifo(EvictionPolicyTests):
    def make_policy(self, columns: RowColumns) -> EvictionPolicy:
        return S3FifoPolicy(columns)


class TestTide(EvictionPolicyTests):
    def make_policy(self, columns: RowColumns) -> EvictionPolicy:
        return TidePolicy(columns)
