"""vLLM's block hashes from tokens: pieces, and what is refused. The values themselves stand in the golden vectors."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.errors import RequestError
from blockyard.core.vllm_chain import VllmChain, VllmHash, VllmMedium, VllmScope, event_hash

TOKENS = list(range(100, 140))
SCOPE = VllmScope(
    lora_name="adapter",
    lora_path="/adapter",
    cache_salt="salt",
    media=(
        VllmMedium(identifier="image", first_token=2, tokens=7),
        VllmMedium(identifier="clip", first_token=20, tokens=5),
    ),
)


@pytest.mark.parametrize("algorithm", VllmHash)
@given(st.integers(0, 10), st.integers(0, 3))
def test_a_part_of_a_sequence_has_the_hashes_of_the_whole(algorithm: VllmHash, first: int, rest: int) -> None:
    chain = VllmChain(algorithm, 4)
    whole = chain.block_hashes(TOKENS, SCOPE)
    parent = whole[first - 1] if first else None
    part = chain.block_hashes(TOKENS[4 * first : 40 - rest], SCOPE, first_block=first, parent=parent)
    assert part == whole[first : 10 - (rest > 0)]


@pytest.mark.parametrize("algorithm", VllmHash)
def test_everything_that_the_engine_hashes_counts(algorithm: VllmHash) -> None:
    image, clip = SCOPE.media
    scopes = [
        SCOPE,
        replace(SCOPE, lora_name="other"),
        replace(SCOPE, lora_path="/other"),
        replace(SCOPE, cache_salt="other"),
        replace(SCOPE, media=(clip,)),
        replace(SCOPE, media=(replace(image, identifier="other"), clip)),
        replace(SCOPE, media=(replace(image, first_token=1), clip)),
        replace(SCOPE, media=(replace(image, tokens=11), clip)),
        VllmScope(),
    ]
    last = [VllmChain(algorithm, 4).block_hashes(TOKENS, scope)[-1] for scope in scopes]
    last += [VllmChain(algorithm, 4, "1").block_hashes(TOKENS, SCOPE)[-1]]
    last += [VllmChain(algorithm, 4).block_hashes([99, *TOKENS[1:]], SCOPE)[-1]]
    assert len(set(last)) == len(last)


def test_a_lora_without_a_name_is_none() -> None:
    chain = VllmChain(VllmHash.SHA256_CBOR, 4)
    assert chain.block_hashes(TOKENS, VllmScope(lora_path="/adapter")) == chain.block_hashes(TOKENS)


def test_events_name_a_block_by_the_low_half_of_its_last_bytes() -> None:
    assert event_hash(bytes(24) + b"\xff" * 7 + b"\xfe") == 2**64 - 2


@pytest.mark.parametrize(
    "scope",
    [
        VllmScope(lora_name="same", lora_path="same"),
        VllmScope(lora_name="lora", lora_path="path"),
        VllmScope(lora_name="same", lora_path="path", cache_salt="same"),
        VllmScope(cache_salt="cache_salt"),
        VllmScope(
            media=(
                VllmMedium(identifier="same", first_token=0, tokens=1),
                VllmMedium(identifier="same", first_token=2, tokens=1),
            )
        ),
        VllmScope(media=(VllmMedium(identifier="mm", first_token=0, tokens=1),)),
    ],
    ids=["name and path", "name and word", "name and salt", "salt and word", "two media", "medium and word"],
)
def test_a_block_with_equal_texts_has_no_hash_over_its_pickle(scope: VllmScope) -> None:
    with pytest.raises(RequestError, match="equal"):
        VllmChain(VllmHash.SHA256, 4).block_hashes(TOKENS, scope)
    assert len(VllmChain(VllmHash.SHA256_CBOR, 4).block_hashes(TOKENS, scope)) == 10


def test_equal_texts_in_blocks_apart_have_a_hash() -> None:
    media = (
        VllmMedium(identifier="same", first_token=0, tokens=4),
        VllmMedium(identifier="same", first_token=4, tokens=4),
    )
    assert len(VllmChain(VllmHash.SHA256, 4).block_hashes(TOKENS, VllmScope(media=media))) == 10


@pytest.mark.parametrize(
    "media",
    [
        (VllmMedium(identifier="i", first_token=0, tokens=0),),
        (VllmMedium(identifier="i", first_token=-1, tokens=3),),
        (VllmMedium(identifier="", first_token=0, tokens=3),),
        (VllmMedium(identifier="i", first_token=0, tokens=3), VllmMedium(identifier="j", first_token=2, tokens=3)),
    ],
    ids=["empty", "before the sequence", "without identifier", "overlapping"],
)
def test_impossible_media_are_refused(media: tuple[VllmMedium, ...]) -> None:
    with pytest.raises(RequestError):
        VllmChain(VllmHash.SHA256_CBOR, 4).block_hashes(TOKENS, VllmScope(media=media))


@pytest.mark.parametrize(
    ("first_block", "parent"),
    [(-1, None), (1, None), (0, bytes(32)), (1, bytes(31)), (1, b"")],
    ids=["negative", "no parent", "parent of the first", "short parent", "empty parent"],
)
def test_a_position_without_its_parent_is_refused(first_block: int, parent: bytes | None) -> None:
    with pytest.raises(RequestError):
        VllmChain(VllmHash.SHA256_CBOR, 4).block_hashes(TOKENS, first_block=first_block, parent=parent)


@pytest.mark.parametrize("tokens", [[-1], [2**32], [0.5]], ids=str)
def test_what_is_no_token_is_refused(tokens: list[int]) -> None:
    with pytest.raises(RequestError):
        VllmChain(VllmHash.SHA256_CBOR, 1).block_hashes(tokens)


@pytest.mark.parametrize("block_tokens", [0, -16])
def test_a_block_holds_at_least_one_token(block_tokens: int) -> None:
    with pytest.raises(RequestError):
        VllmChain(VllmHash.SHA256, block_tokens)


def test_a_text_that_has_no_cbor_is_refused() -> None:
    with pytest.raises(RequestError):
        VllmChain(VllmHash.SHA256_CBOR, 4, "\ud800")
    with pytest.raises(RequestError):
        VllmChain(VllmHash.SHA256_CBOR, 4).block_hashes(TOKENS, VllmScope(cache_salt="\ud800"))
