"""KVBM views: media runs, generations, refusals. The values themselves stand in the golden vectors."""

from collections.abc import Callable

import pytest

from blockyard.core.errors import RequestError
from blockyard.core.kvbm_hashing import (
    CHAIN_SEED,
    KvbmVersion,
    MediaRun,
    block_hashes,
    router_block_hash,
    salt_hash,
    sequence_hashes,
)


def test_an_incomplete_block_has_no_hash() -> None:
    assert block_hashes([1, 2, 3], 4, 1337) == []
    assert sequence_hashes([], KvbmVersion.V2, 1337) == []


def test_the_two_generations_agree_only_under_the_fixed_salt() -> None:
    blocks = block_hashes(range(1, 13), 4, 1337)
    assert sequence_hashes(blocks, KvbmVersion.V1, 1337) == sequence_hashes(blocks, KvbmVersion.V2, 1337)
    assert sequence_hashes(blocks, KvbmVersion.V1, 7) != sequence_hashes(blocks, KvbmVersion.V2, 7)
    assert salt_hash(KvbmVersion.V1, salt="s") != salt_hash(KvbmVersion.V2, salt="s")


def test_the_router_hashes_text_like_the_block_hash_and_media_in_its_own_way() -> None:
    assert router_block_hash([1, 2, 3, 4]) == 14643705804678351452
    media = router_block_hash([1, 2, 3, 4], [9, 3])
    assert media == router_block_hash([1, 2, 3, 4], [3, 9])
    assert media != router_block_hash([1, 2, 3, 4])


def test_a_media_run_changes_only_the_blocks_it_overlaps() -> None:
    tokens = list(range(16))
    text = block_hashes(tokens, 4, 1337)
    media = block_hashes(tokens, 4, 1337, [MediaRun(6, 4, 0xAB)])
    assert [left == right for left, right in zip(text, media, strict=True)] == [True, False, False, True]


def test_token_values_under_a_media_run_do_not_matter() -> None:
    run = [MediaRun(1, 2, 0xAB)]
    assert block_hashes([1, 7, 7, 4], 4, 1337, run) == block_hashes([1, 8, 9, 4], 4, 1337, run)
    assert block_hashes([1, 7, 7, 4], 4, 1337, run) != block_hashes([2, 7, 7, 4], 4, 1337, run)


@pytest.mark.parametrize(
    "media",
    [
        [MediaRun(0, 0, 1)],
        [MediaRun(0, 2, 1 << 64)],
        [MediaRun(0, 2, -1)],
        [MediaRun(-1, 2, 1)],
        [MediaRun(3, 2, 1)],
        [MediaRun(0, 2, 1), MediaRun(1, 2, 1)],
    ],
    ids=["empty", "hash too large", "hash negative", "before", "beyond", "overlapping"],
)
def test_impossible_media_runs_are_refused(media: list[MediaRun]) -> None:
    with pytest.raises(RequestError):
        block_hashes([1, 2, 3, 4], 4, 1337, media)


def test_a_block_holds_at_least_one_token() -> None:
    with pytest.raises(RequestError):
        block_hashes([1], 0, 1337)


def test_sequence_hashes_of_a_suffix_continue_those_of_its_prefix() -> None:
    blocks = block_hashes(range(1, 25), 4, 7)
    for version in KvbmVersion:
        whole = sequence_hashes(blocks, version, 7)
        assert whole[2:] == sequence_hashes(blocks[2:], version, 7, parent=whole[1])
        assert sequence_hashes([], version, 7, parent=whole[1]) == []
        assert whole[0] == blocks[0]


def test_a_run_over_many_blocks_counts_its_offset_on() -> None:
    tokens = list(range(16))
    whole = block_hashes(tokens, 4, CHAIN_SEED, [MediaRun(2, 12, 0xAB)])
    assert len(set(whole)) == 4
    assert whole[1] != block_hashes(tokens[4:8], 4, CHAIN_SEED, [MediaRun(0, 4, 0xAB)])[0]
    assert whole[0] == block_hashes(tokens[:4], 4, CHAIN_SEED, [MediaRun(2, 2, 0xAB)])[0]


def test_a_run_in_the_incomplete_last_block_changes_nothing() -> None:
    tokens = list(range(7))
    assert block_hashes(tokens, 4, CHAIN_SEED, [MediaRun(5, 2, 1)]) == block_hashes(tokens, 4, CHAIN_SEED)


def test_lora_and_salt_change_every_block_and_an_empty_text_is_absent() -> None:
    for version in KvbmVersion:
        seeds = [
            salt_hash(version, lora=lora, salt=salt) for lora, salt in (("", ""), ("a", ""), ("", "a"), ("a", "a"))
        ]
        hashes = [block_hashes(range(8), 4, seed) for seed in seeds]
        assert len({value for blocks in hashes for value in blocks}) == 8
        assert seeds[0] == salt_hash(version)


@pytest.mark.parametrize("value", [-1, 2**64])
@pytest.mark.parametrize(
    "call",
    [
        lambda value: block_hashes([1], 1, value),
        lambda value: sequence_hashes([value], KvbmVersion.V2, 0),
        lambda value: sequence_hashes([1, value], KvbmVersion.V2, 0),
        lambda value: sequence_hashes([1], KvbmVersion.V2, 0, parent=value),
        lambda value: sequence_hashes([1], KvbmVersion.V1, value),
        lambda value: router_block_hash([1], [value]),
        lambda value: router_block_hash([1], seed=value),
    ],
    ids=["seed", "first block", "later block", "parent", "chain seed", "router's medium", "router's seed"],
)
def test_hashes_and_seeds_beyond_64_bits_are_refused(call: Callable[[int], object], value: int) -> None:
    with pytest.raises(RequestError):
        call(value)


@pytest.mark.parametrize("tokens", [[-1], [2**32], [1.5], ["a"]], ids=str)
def test_what_is_no_token_is_refused(tokens: list[int]) -> None:
    with pytest.raises(RequestError):
        block_hashes(tokens, 1, 0)
    with pytest.raises(RequestError):
        router_block_hash(tokens)


@pytest.mark.parametrize("version", KvbmVersion)
def test_a_text_that_is_no_unicode_is_refused(version: KvbmVersion) -> None:
    for texts in ({"lora": "\ud800"}, {"salt": "\ud800"}):
        with pytest.raises(RequestError):
            salt_hash(version, **texts)
