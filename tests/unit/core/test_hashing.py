"""Content keys: what they depend on, and how a sequence is named piece by piece."""

import numpy as np
import pytest

from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import RequestError
from blockyard.core.hashing import content_run, token_bytes
from blockyard.core.identity import ModelIdentity, MultimodalRun, SequenceScope
from blockyard.core.vocabulary import ROOT_KEY

IDENTITY = ModelIdentity(model="m").digest()
PLAIN = SequenceScope()
TOKENS = list(range(100, 140))
IMAGE = MultimodalRun(first_token=6, tokens=8, content_digest=b"i" * 32)


def test_only_whole_blocks_are_named() -> None:
    assert len(content_run(IDENTITY, PLAIN, TOKENS[:3], 4)) == 0
    assert len(content_run(IDENTITY, PLAIN, TOKENS[:11], 4)) == 2
    assert content_run(IDENTITY, PLAIN, [], 4) == ChainRun(b"")


def test_a_sequence_named_piece_by_piece_gets_the_same_digests() -> None:
    scope = SequenceScope(multimodal=(IMAGE,))
    whole = content_run(IDENTITY, scope, TOKENS, 4)
    first = content_run(IDENTITY, scope, TOKENS[:13], 4)
    second = content_run(IDENTITY, scope, TOKENS[:30], 4, parent=first)
    third = content_run(IDENTITY, scope, TOKENS, 4, parent=second)
    assert first.digests + second.digests + third.digests == whole.digests
    assert (second.first_position, second.parent) == (3, first.key(2))
    assert third == whole.slice(7, 10)


def test_a_parent_may_end_where_the_sequence_ends() -> None:
    whole = content_run(IDENTITY, PLAIN, TOKENS, 4)
    rest = content_run(IDENTITY, PLAIN, TOKENS, 4, parent=whole)
    assert (len(rest), rest.first_position, rest.parent) == (0, 10, whole.key(9))
    empty = ChainRun(b"")
    assert content_run(IDENTITY, PLAIN, TOKENS, 4, parent=empty) == whole


def test_a_parent_beyond_the_sequence_is_refused() -> None:
    whole = content_run(IDENTITY, PLAIN, TOKENS, 4)
    with pytest.raises(RequestError):
        content_run(IDENTITY, PLAIN, TOKENS[:39], 4, parent=whole)


def test_an_empty_parent_that_does_not_start_the_sequence_is_refused() -> None:
    nowhere = ChainRun(b"", 2, content_run(IDENTITY, PLAIN, TOKENS, 4).key(1))
    with pytest.raises(RequestError):
        content_run(IDENTITY, PLAIN, TOKENS, 4, parent=nowhere)


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


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.dtype(">i8"), np.uint64])
def test_arrays_and_lists_of_tokens_are_equal(dtype: np.typing.DTypeLike) -> None:
    array = np.array(TOKENS, dtype=dtype)
    assert token_bytes(array) == token_bytes(TOKENS) == token_bytes(tuple(TOKENS))
    assert content_run(IDENTITY, PLAIN, array, 4) == content_run(IDENTITY, PLAIN, TOKENS, 4)
    assert token_bytes(array[::2]) == token_bytes(TOKENS[::2])


@pytest.mark.parametrize(
    "tokens",
    [
        [-1],
        [2**32],
        [1.5],
        ["a"],
        bytes(8),
        bytearray(3),
        np.array([-1]),
        np.array([2**32]),
        np.array([1.5]),
        np.array([[1]]),
    ],
    ids=str,
)
def test_what_is_no_token_is_refused(tokens: list[int]) -> None:
    with pytest.raises(RequestError):
        content_run(IDENTITY, PLAIN, tokens, 1)


def test_a_block_holds_at_least_one_token() -> None:
    with pytest.raises(RequestError):
        content_run(IDENTITY, PLAIN, TOKENS, 0)


def test_the_first_parent_is_the_root() -> None:
    assert content_run(IDENTITY, PLAIN, TOKENS, 4).parent == ROOT_KEY
