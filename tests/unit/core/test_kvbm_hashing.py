"""KVBM views: media runs, generations, refusals. The values themselves stand in the golden vectors."""

import pytest

from blockyard.core.errors import RequestError
from blockyard.core.kvbm_hashing import (
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
