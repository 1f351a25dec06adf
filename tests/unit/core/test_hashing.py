"""Content keys: what they depend on, and how a sequence is named piece by piece."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.chain_run import MAX_CHAIN_BLOCKS, ChainRun
from blockyard.core.errors import RequestError
from blockyard.core.hashing import ChainHasher, content_run
from blockyard.core.identity import ModelIdentity, MultimodalRun, SequenceScope
from blockyard.core.vocabulary import ROOT_KEY, ContentKey, IdentityDigest

IDENTITY = ModelIdentity(model="m").digest()
PLAIN = SequenceScope()
TOKENS = list(range(100, 140))
IMAGE = MultimodalRun(first_token=6, tokens=8, content_digest=b"i" * 32)


def test_only_whole_blocks_are_named() -> None:
    assert len(content_run(IDENTITY, PLAIN, TOKENS[:3], 4)) == 0
    assert len(content_run(IDENTITY, PLAIN, TOKENS[:11], 4)) == 2
    assert content_run(IDENTITY, PLAIN, [], 4) == ChainRun(b"")


def joined(runs: Iterable[ChainRun]) -> ChainRun:
    """Consecutive runs as one."""
    first, *rest = runs
    return ChainRun(first.digests + b"".join(run.digests for run in rest), first.first_position, first.parent)


# --- sequences that grow ------------------------------------------------------------------------------------------
def test_a_growing_sequence_gives_each_block_out_when_its_last_token_comes() -> None:
    whole = content_run(IDENTITY, PLAIN, TOKENS, 4)
    hasher = ChainHasher(IDENTITY, PLAIN, 4)
    assert hasher.append(TOKENS[:3]) == ChainRun(b"")
    assert hasher.append(TOKENS[3:9]) == whole.slice(0, 2)
    assert (hasher.blocks, hasher.tokens) == (2, 9)
    assert hasher.append([]) == whole.slice(2, 2)
    assert hasher.append(TOKENS[9:]) == whole.slice(2, 10)
    assert (hasher.blocks, hasher.tokens) == (10, 40)


@given(st.lists(st.integers(0, 17), max_size=8), st.integers(1, 6))
def test_pieces_of_any_size_give_the_digests_of_the_whole(sizes: list[int], block_tokens: int) -> None:
    tokens = list(range(7, 7 + sum(sizes)))
    scope = SequenceScope(lora="l", multimodal=(IMAGE,))
    hasher = ChainHasher(IDENTITY, scope, block_tokens)
    runs, start = [hasher.append([])], 0
    for size in sizes:
        runs.append(hasher.append(tokens[start : start + size]))
        start += size
    assert joined(runs) == content_run(IDENTITY, scope, tokens, block_tokens)


@given(st.integers(0, 10), st.booleans())
def test_a_sequence_goes_on_behind_blocks_that_have_names(named: int, with_image: bool) -> None:
    scope = SequenceScope(multimodal=(IMAGE,) if with_image else ())
    whole = content_run(IDENTITY, scope, TOKENS, 4)
    for part in (whole.slice(0, named), whole.slice(named // 2, named)):
        if not len(part) and part.first_position:
            continue
        hasher = ChainHasher(IDENTITY, scope, 4, named=part)
        assert (hasher.blocks, hasher.tokens) == (named, 4 * named)
        assert hasher.append(TOKENS[4 * named :]) == whole.slice(named, 10)


def test_a_hasher_keeps_nothing_of_an_array_that_it_was_given() -> None:
    held = np.array(TOKENS, np.uint32)
    hasher = ChainHasher(IDENTITY, PLAIN, 4)
    named = hasher.append(held[:11])
    held[:] = 0
    assert joined([named, hasher.append(TOKENS[11:])]) == content_run(IDENTITY, PLAIN, TOKENS, 4)


def test_an_empty_run_that_does_not_start_the_sequence_says_nothing_to_go_on_from() -> None:
    nowhere = content_run(IDENTITY, PLAIN, TOKENS, 4).slice(2, 2)
    with pytest.raises(RequestError, match="empty run"):
        ChainHasher(IDENTITY, PLAIN, 4, named=nowhere)
    assert ChainHasher(IDENTITY, PLAIN, 4, named=ChainRun(b"")).append(TOKENS) == content_run(
        IDENTITY, PLAIN, TOKENS, 4
    )


def test_media_that_come_with_later_tokens_count_as_if_they_had_been_known() -> None:
    later = MultimodalRun(first_token=22, tokens=9, content_digest=b"later")
    hasher = ChainHasher(IDENTITY, SequenceScope(multimodal=(IMAGE,)), 4)
    runs = [hasher.append(TOKENS[:22]), hasher.append(TOKENS[22:26], [later]), hasher.append(TOKENS[26:])]
    assert joined(runs) == content_run(IDENTITY, SequenceScope(multimodal=(later, IMAGE)), TOKENS, 4)


@pytest.mark.parametrize(
    ("tokens", "media"),
    [
        ([1, 2, -1], []),
        ([1, 2, 2**32], []),
        ([1, 2, 3], [MultimodalRun(first_token=7, tokens=3, content_digest=b"x")]),
        ([1, 2, 3], [MultimodalRun(first_token=12, tokens=3, content_digest=b"x")]),
        ([1, 2, 3], [MultimodalRun(first_token=20, tokens=0, content_digest=b"x")]),
    ],
    ids=["negative token", "token too large", "block named", "overlaps", "empty"],
)
def test_an_append_that_is_refused_changes_nothing(tokens: list[int], media: list[MultimodalRun]) -> None:
    scope = SequenceScope(multimodal=(IMAGE,))
    hasher = ChainHasher(IDENTITY, scope, 4)
    named = hasher.append(TOKENS[:10])
    with pytest.raises(RequestError):
        hasher.append(tokens, media)
    assert (hasher.blocks, hasher.tokens) == (2, 10)
    assert joined([named, hasher.append(TOKENS[10:])]) == content_run(IDENTITY, scope, TOKENS, 4)


def test_a_chain_ends_where_positions_do() -> None:
    last = ChainRun(b"d" * 32, MAX_CHAIN_BLOCKS - 2, ContentKey(b"p" * 16))
    hasher = ChainHasher(IDENTITY, PLAIN, 1, named=last)
    with pytest.raises(RequestError, match="too long"):
        hasher.append([1, 2])
    assert hasher.append([1]).first_position == MAX_CHAIN_BLOCKS - 1


# --- what a key depends on ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "scope",
    [
        SequenceScope(tenant="t"),
        SequenceScope(salt="t"),
        SequenceScope(lora="t"),
        SequenceScope(multimodal=(MultimodalRun(first_token=0, tokens=1, content_digest=b"t"),)),
    ],
    ids=["tenant", "salt", "lora", "multimodal"],
)
def test_every_part_of_the_scope_changes_every_key(scope: SequenceScope) -> None:
    plain, other = content_run(IDENTITY, PLAIN, TOKENS, 4), content_run(IDENTITY, scope, TOKENS, 4)
    assert not set(plain).intersection(other)


def test_another_identity_or_block_size_shares_no_key() -> None:
    plain = set(content_run(IDENTITY, PLAIN, TOKENS, 4))
    assert not plain.intersection(content_run(ModelIdentity(model="n").digest(), PLAIN, TOKENS, 4))
    assert not plain.intersection(content_run(IDENTITY, PLAIN, TOKENS, 8))


def test_a_changed_token_changes_its_block_and_all_after_it() -> None:
    changed = TOKENS.copy()
    changed[9] += 1
    plain, other = content_run(IDENTITY, PLAIN, TOKENS, 4).keys(), content_run(IDENTITY, PLAIN, changed, 4).keys()
    assert plain[:2] == other[:2]
    assert not set(plain[2:]).intersection(other[2:])


@pytest.mark.parametrize(
    "run",
    [
        MultimodalRun(first_token=6, tokens=8, content_digest=b"j" * 32),
        MultimodalRun(first_token=6, tokens=9, content_digest=b"i" * 32),
        MultimodalRun(first_token=7, tokens=8, content_digest=b"i" * 32),
    ],
    ids=["content", "length", "place"],
)
def test_a_multimodal_run_enters_at_the_first_block_it_overlaps(run: MultimodalRun) -> None:
    image = content_run(IDENTITY, SequenceScope(multimodal=(IMAGE,)), TOKENS, 4).keys()
    other = content_run(IDENTITY, SequenceScope(multimodal=(run,)), TOKENS, 4).keys()
    text = content_run(IDENTITY, PLAIN, TOKENS, 4).keys()
    assert image[0] == other[0] == text[0]
    assert not set(image[1:]).intersection(other[1:], text[1:])


def test_the_order_of_multimodal_runs_in_the_request_does_not_matter() -> None:
    runs = (IMAGE, MultimodalRun(first_token=0, tokens=2, content_digest=b"k"))
    there = content_run(IDENTITY, SequenceScope(multimodal=runs), TOKENS, 4)
    assert there == content_run(IDENTITY, SequenceScope(multimodal=runs[::-1]), TOKENS, 4)


@pytest.mark.parametrize(
    "runs",
    [
        (MultimodalRun(first_token=0, tokens=0, content_digest=b"x"),),
        (MultimodalRun(first_token=0, tokens=2**64, content_digest=b"x"),),
        (MultimodalRun(first_token=-1, tokens=2, content_digest=b"x"),),
        (MultimodalRun(first_token=0, tokens=2, content_digest=b""),),
        (IMAGE, MultimodalRun(first_token=13, tokens=2, content_digest=b"x")),
    ],
    ids=["empty", "too long", "before the sequence", "no digest", "overlapping"],
)
def test_impossible_multimodal_runs_are_refused(runs: tuple[MultimodalRun, ...]) -> None:
    with pytest.raises(RequestError):
        content_run(IDENTITY, SequenceScope(multimodal=runs), TOKENS, 4)


@pytest.mark.parametrize("block_tokens", [0, -4])
def test_a_block_holds_at_least_one_token(block_tokens: int) -> None:
    with pytest.raises(RequestError):
        content_run(IDENTITY, PLAIN, TOKENS, block_tokens)


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_an_identity_that_is_no_digest_is_refused(length: int) -> None:
    with pytest.raises(RequestError, match="identity digest"):
        content_run(IdentityDigest(bytes(length)), PLAIN, TOKENS, 4)


@pytest.mark.parametrize("field", ["tenant", "salt", "lora"])
def test_a_text_that_is_no_unicode_is_refused(field: str) -> None:
    values: dict[str, Any] = {field: "a\ud800"}
    with pytest.raises(RequestError, match=field):
        content_run(IDENTITY, SequenceScope(**values), TOKENS, 4)


def test_a_token_that_is_refused_is_not_named() -> None:
    with pytest.raises(RequestError) as caught:
        content_run(IDENTITY, PLAIN, [1, 2**32 + 77], 1)
    assert "77" not in str(caught.value)


def test_the_first_parent_is_the_root() -> None:
    assert content_run(IDENTITY, PLAIN, TOKENS, 4).parent == ROOT_KEY
