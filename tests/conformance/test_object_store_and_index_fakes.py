"""The fakes of object store and prefix index keep the contracts that the adapters keep on real servers."""

import pytest

from blockyard.testing.clock import FakeClock
from blockyard.testing.memory_index import MemoryIndex
from blockyard.testing.memory_store import MemoryStore
from blockyard.testing.object_store_conformance import ObjectStoreTests
from blockyard.testing.prefix_index_conformance import PrefixIndexTests


class TestMemoryStore(ObjectStoreTests):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    def admin(self, store: MemoryStore) -> MemoryStore:
        return store


class TestMemoryIndex(PrefixIndexTests):
    @pytest.fixture
    def index(self) -> MemoryIndex:
        return MemoryIndex(FakeClock())
