"""SGLang's page hashes from tokens: pieces, and what is refused. The values themselves stand in the golden vectors."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.errors import RequestError
from blockyard.core.sglang_chain import event_hash, event_seed, media_tokens, page_hashes, storage_seed

TOKENS = [*range(100, 120), *media_tokens(b"content", 9), *range(120, 131)]


@given(st.integers(0, 10), st.integers(0, 3), st.sampled_from([None, "", "key"]))
def test_a_part_of_a_sequence_has_the_hashes_of_the_whole(first: int, rest: int, key: str | None) -> None:
    seed = storage_seed(key, None)
    whole = page_hashes(TOKENS, 4, seed)
    parent = whole[first - 1] if first else seed
    assert page_hashes(TOKENS[4 * first : 40 - rest], 4, parent) == whole[first : 10 - (rest > 0)]


def test_arrays_and_lists_of_tokens_are_equal() -> None:
    assert page_hashes(np.array(TOKENS), 4) == page_hashes(TOKENS, 4) == page_hashes(tuple(TOKENS), 4)
    assert page_hashes(np.array(TOKENS[:20], np.uint32), 4) == page_hashes(TOKENS[:20], 4)
    assert page_hashes([], 4) == page_hashes([1, 2, 3], 4) == []


def test_namespaces_differ_and_an_empty_salt_is_none() -> None:
    seeds = [storage_seed(*pair) for pair in ((None, None), ("", None), ("a", None), (None, "a"), ("a", "b"))]
    assert len(set(seeds)) == 5
    assert storage_seed("ab", "c") != storage_seed("a", "bc")
    assert storage_seed(None, "") is storage_seed(None, None) is event_seed("") is event_seed(None) is None
    assert event_seed("a") != storage_seed(None, "a")


def test_media_tokens_repeat_in_fours_above_any_vocabulary() -> None:
    tokens = media_tokens(b"content", 9)
    assert tokens[:4] == tokens[4:8]
    assert tokens[8] == tokens[0]
    assert min(tokens) >= 1_000_000
    assert not set(tokens).intersection(media_tokens(b"other", 9))


def test_events_name_a_page_by_its_first_bytes_with_a_sign() -> None:
    assert event_hash(b"\xff" * 8 + bytes(24)) == -1
    assert event_hash(bytes(7) + b"\x05" + b"\xff" * 24) == 5


@pytest.mark.parametrize(
    "tokens",
    [[-1], [2**63], [2**70], [1, 2**63], [1.5], ["a"], [None], bytes(8), "abc", 7, np.array([[1]]), [[1], [1, 2]]],
    ids=repr,
)
def test_what_is_no_token_is_refused(tokens: Any) -> None:
    with pytest.raises(RequestError):
        page_hashes(tokens, 1)


def test_wrong_sizes_and_texts_that_are_no_unicode_are_refused() -> None:
    for call in (
        lambda: page_hashes(TOKENS, 0),
        lambda: page_hashes(TOKENS, -4),
        lambda: page_hashes(TOKENS, 4, bytes(31)),
        lambda: page_hashes(TOKENS, 4, b""),
        lambda: storage_seed("\ud800", None),
        lambda: storage_seed(None, "\ud800"),
        lambda: event_seed("\ud800"),
        lambda: media_tokens(b"content", -1),
    ):
        with pytest.raises(RequestError):
            call()
