"""Behaviour that every prefix index must show: inherit, give the fixture ``index`` (empty), the tests run."""

import hashlib

import pytest

from blockyard.core.stored_key import StoredKey
from blockyard.core.vocabulary import IdentityDigest, PackId
from blockyard.tiers.index_value import Locator
from blockyard.tiers.prefix_index import IndexMeta, IndexState, PrefixIndex

STORE_ID = b"store-of-testing"
BUILDER = b"builder-of-tests"
OTHER_BUILDER = b"another-builder!"
IDENTITY = IdentityDigest(hashlib.sha256(b"identity").digest())
OTHER_IDENTITY = IdentityDigest(hashlib.sha256(b"other identity").digest())


def some_key(number: int) -> StoredKey:
    """Some key, the same for the same number."""
    return StoredKey(hashlib.sha256(number.to_bytes(4, "little")).digest()[:16])


def locator(pack: int, index: int = 0, blocks: int = 4) -> Locator:
    """A locator into a pack."""
    return Locator(PackId(some_key(1_000_000 + pack)), index, blocks, 4_352)


class PrefixIndexTests:
    """Contract of ``PrefixIndex``."""

    async def test_an_empty_index_knows_nothing_and_says_so(self, index: PrefixIndex) -> None:
        answer = await index.find(IDENTITY, [some_key(1), some_key(2)])
        assert answer.locators == (None, None)
        assert answer.meta.state is IndexState.ABSENT
        assert not answer.meta.is_complete(STORE_ID)

    async def test_finds_what_was_set_in_the_order_asked(self, index: PrefixIndex) -> None:
        entries = [(some_key(number), locator(1, number)) for number in range(4)]
        await index.set_locators(IDENTITY, entries)
        answer = await index.find(IDENTITY, [some_key(3), some_key(99), some_key(0)])
        assert answer.locators == (locator(1, 3), None, locator(1, 0))

    async def test_identities_are_apart(self, index: PrefixIndex) -> None:
        await index.set_locators(IDENTITY, [(some_key(1), locator(1))])
        assert (await index.find(OTHER_IDENTITY, [some_key(1)])).locators == (None,)

    @pytest.mark.parametrize("count", [0, 1, 1_023, 1_024, 4_096])
    async def test_answers_are_aligned_for_any_number_of_keys(self, index: PrefixIndex, count: int) -> None:
        keys = [some_key(number) for number in range(count)]
        await index.set_locators(IDENTITY, [(key, locator(1, number % 4)) for number, key in enumerate(keys)])
        answer = await index.find(IDENTITY, keys)
        assert answer.locators == tuple(locator(1, number % 4) for number in range(count))

    @pytest.mark.parametrize("order", ["short first", "long first"])
    async def test_a_longer_pack_keeps_the_locators(self, index: PrefixIndex, order: str) -> None:
        short, long = locator(1, 1, blocks=2), locator(2, 1, blocks=8)
        for pack in (short, long) if order == "short first" else (long, short):
            await index.set_locators(IDENTITY, [(some_key(1), pack)])
        assert (await index.find(IDENTITY, [some_key(1)])).locators == (long,)

    async def test_a_pack_of_equal_length_takes_over(self, index: PrefixIndex) -> None:
        await index.set_locators(IDENTITY, [(some_key(1), locator(1))])
        await index.set_locators(IDENTITY, [(some_key(1), locator(2))])
        assert (await index.find(IDENTITY, [some_key(1)])).locators == (locator(2),)

    async def test_drop_clears_only_locators_into_that_pack(self, index: PrefixIndex) -> None:
        keys = [some_key(number) for number in range(3)]
        await index.set_locators(IDENTITY, [(keys[0], locator(1)), (keys[1], locator(2))])
        assert await index.drop_locators(IDENTITY, locator(1).pack, keys) == 1
        assert (await index.find(IDENTITY, keys)).locators == (None, locator(2), None)

    async def test_drop_of_what_is_gone_is_harmless(self, index: PrefixIndex) -> None:
        assert await index.drop_locators(IDENTITY, locator(1).pack, [some_key(1)]) == 0

    async def test_a_dropped_locator_can_be_set_again(self, index: PrefixIndex) -> None:
        await index.set_locators(IDENTITY, [(some_key(1), locator(1))])
        await index.drop_locators(IDENTITY, locator(1).pack, [some_key(1)])
        await index.set_locators(IDENTITY, [(some_key(1), locator(2, blocks=1))])
        assert (await index.find(IDENTITY, [some_key(1)])).locators == (locator(2, blocks=1),)

    async def test_touch_changes_no_locator_and_makes_none(self, index: PrefixIndex) -> None:
        await index.set_locators(IDENTITY, [(some_key(1), locator(1, 3))])
        await index.touch(IDENTITY, [some_key(1), some_key(2)])
        assert (await index.find(IDENTITY, [some_key(1), some_key(2)])).locators == (locator(1, 3), None)

    async def test_a_build_makes_the_index_complete(self, index: PrefixIndex) -> None:
        assert await index.begin_build(STORE_ID, BUILDER, 60)
        assert await index.meta() == IndexMeta(IndexState.BUILDING, STORE_ID)
        assert not (await index.meta()).is_complete(STORE_ID)
        assert await index.renew_build(STORE_ID, BUILDER, 60)
        assert await index.finish_build(STORE_ID, BUILDER)
        assert (await index.find(IDENTITY, [])).meta.is_complete(STORE_ID)

    async def test_one_builder_at_a_time(self, index: PrefixIndex) -> None:
        assert await index.begin_build(STORE_ID, BUILDER, 60)
        assert not await index.begin_build(STORE_ID, OTHER_BUILDER, 60)
        assert not await index.renew_build(STORE_ID, OTHER_BUILDER, 60)
        assert not await index.finish_build(STORE_ID, OTHER_BUILDER)
        assert await index.meta() == IndexMeta(IndexState.BUILDING, STORE_ID)

    async def test_a_complete_index_is_not_built_again(self, index: PrefixIndex) -> None:
        await index.begin_build(STORE_ID, BUILDER, 60)
        await index.finish_build(STORE_ID, BUILDER)
        assert not await index.begin_build(STORE_ID, OTHER_BUILDER, 60)
        assert not await index.finish_build(STORE_ID, BUILDER)

    async def test_an_index_of_another_store_is_not_complete(self, index: PrefixIndex) -> None:
        await index.begin_build(STORE_ID, BUILDER, 60)
        await index.finish_build(STORE_ID, BUILDER)
        meta = await index.meta()
        assert not meta.is_complete(b"some other store")
        assert not meta.may_describe(b"some other store")

    async def test_entries_can_be_written_while_the_index_is_built(self, index: PrefixIndex) -> None:
        await index.begin_build(STORE_ID, BUILDER, 60)
        await index.set_locators(IDENTITY, [(some_key(1), locator(1))])
        answer = await index.find(IDENTITY, [some_key(1)])
        assert answer.locators == (locator(1),)
        assert answer.meta.may_describe(STORE_ID)
