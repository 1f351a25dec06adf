"""Block hashes computed from tokens are those of the engine, for all that enters them; so are the golden vectors."""

import hashlib
import itertools
import json
import random
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from tests.engines.contract.engine_parts import BLOCK, ROW, Engine
from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils
from vllm.v1.request import Request

from blockyard.core.engine_names import EngineNames, row_hashes
from blockyard.core.errors import RequestError
from blockyard.core.identity import ModelIdentity
from blockyard.core.pickle_form import Value, encode
from blockyard.core.vllm_chain import DEFAULT_SEED, VllmChain, VllmHash, VllmMedium, VllmScope, event_hash

VECTORS = json.loads((Path(__file__).parents[3] / "docs" / "reference" / "hashing-vectors.json").read_text())
ALGORITHMS = tuple(VllmHash)
MEDIA = (
    VllmMedium(identifier="ab" * 32, first_token=3, tokens=9),
    VllmMedium(identifier="another", first_token=12, tokens=1),
    VllmMedium(identifier="ünï", first_token=14, tokens=40),
    VllmMedium(identifier="behind the end", first_token=90, tokens=80),
)
SCOPES = {
    "text": VllmScope(),
    "lora": VllmScope(lora_name="sql-adapter", lora_path="/models/sql"),
    "salt": VllmScope(cache_salt="s3cr3t ☃"),
    "media": VllmScope(media=MEDIA),
    "everything": VllmScope(lora_name="l", lora_path="p" * 300, cache_salt="s", media=MEDIA[::-1]),
}


@pytest.fixture(autouse=True)
def start_value_kept() -> Iterator[None]:
    """The engine keeps the value before the first block in its module."""
    kept = kv_cache_utils.NONE_HASH, kv_cache_utils._NONE_HASH_SEED
    yield
    kv_cache_utils.NONE_HASH, kv_cache_utils._NONE_HASH_SEED = kept


def begin(algorithm: VllmHash, seed: str | None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have the engine begin its chains with this seed; its hash function."""
    if seed is None:
        monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    else:
        monkeypatch.setenv("PYTHONHASHSEED", seed)
    function = get_hash_fn_by_name(algorithm.value)
    kv_cache_utils.init_none_hash(function)
    return function


def request_of(function: Any, tokens: list[int], scope: VllmScope, block_tokens: int) -> Request:
    """A request as the engine has it."""
    media = sorted(scope.media, key=lambda medium: medium.first_token)
    return Request(
        request_id="r",
        prompt_token_ids=tokens,
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        mm_features=[
            MultiModalFeatureSpec(
                data=None,
                modality="image",
                identifier=medium.identifier,
                mm_position=PlaceholderRange(offset=medium.first_token, length=medium.tokens),
            )
            for medium in media
        ],
        lora_request=LoRARequest(scope.lora_name, 1, scope.lora_path) if scope.lora_name else None,
        cache_salt=scope.cache_salt or None,
        block_hasher=kv_cache_utils.get_request_block_hasher(block_tokens, function),
    )


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("block_tokens", [1, 3, 16, 64])
def test_hashes_are_the_engine_s(
    algorithm: VllmHash, scope: VllmScope, block_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(block_tokens)
    for seed in (None, "0", "42"):
        function = begin(algorithm, seed, monkeypatch)
        # Every width that an integer can have in either encoding.
        tokens = [drawn.randrange(1 << drawn.choice((4, 5, 8, 15, 16, 17, 31, 32))) for _ in range(131)]
        chain = VllmChain(algorithm, block_tokens, DEFAULT_SEED if seed is None else seed)
        request = request_of(function, tokens, scope, block_tokens)
        assert chain.start == kv_cache_utils.NONE_HASH
        assert chain.block_hashes(tokens, scope) == request.block_hashes
        assert [event_hash(value) for value in chain.block_hashes(tokens, scope)] == [
            kv_cache_utils.maybe_convert_block_hash(value) for value in request.block_hashes
        ]


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_request_that_grows_goes_on_as_in_the_engine(
    algorithm: VllmHash, scope: VllmScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = begin(algorithm, None, monkeypatch)
    tokens = list(range(7, 107))
    request = request_of(function, tokens[:37], scope, 16)
    chain = VllmChain(algorithm, 16)
    hashes = chain.block_hashes(tokens[:37], scope)
    for stop in (38, 50, 51, 100):
        request.append_output_token_ids(tokens[len(request.all_token_ids) : stop])
        named = len(hashes)
        hashes += chain.block_hashes(tokens[16 * named : stop], scope, first_block=named, parent=hashes[-1])
        assert hashes == request.block_hashes


def test_the_engine_s_pickle_tells_equal_texts_from_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why such blocks are refused: the engine's own hash of them depends on which objects it happens to hold."""
    function = begin(VllmHash.SHA256, None, monkeypatch)
    name = "adapter"
    separate = "".join(tuple(name))
    assert separate == name
    assert separate is not name
    tokens = list(range(16))
    one, other = (
        kv_cache_utils.hash_block_tokens(function, None, tokens, (("lora", name, path),)) for path in (name, separate)
    )
    assert one != other
    with pytest.raises(RequestError, match="equal"):
        VllmChain(VllmHash.SHA256, 16).block_hashes(tokens, VllmScope(lora_name=name, lora_path=name))
    function = begin(VllmHash.SHA256_CBOR, None, monkeypatch)
    cbor = {
        kv_cache_utils.hash_block_tokens(function, None, tokens, (("lora", name, path),)) for path in (name, separate)
    }
    assert cbor == {
        *VllmChain(VllmHash.SHA256_CBOR, 16).block_hashes(tokens, VllmScope(lora_name=name, lora_path=name))
    }


class Word(StrEnum):
    """A text that is one object."""

    AGAIN = "again"


def in_engine(value: Value) -> Any:
    """The value as the engine holds it: the word is one object of the plain type."""
    if isinstance(value, tuple):
        return tuple(map(in_engine, value))
    return AGAIN if isinstance(value, Word) else value


AGAIN = str(Word.AGAIN.value)
INTEGERS = tuple(sign * (1 << bits) - less for bits in range(63) for sign in (-1, 1) for less in (0, 1))


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "",
        "\ud800 ☃",
        "x" * 255,
        "x" * 256,
        b"x" * 255,
        b"x" * 65535,
        (),
        ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), None),
        INTEGERS,
        (Word.AGAIN, "other", Word.AGAIN),
        (tuple((number,) for number in range(300)), Word.AGAIN, Word.AGAIN),
        (b"p" * 32, tuple(range(50_000)), ((Word.AGAIN, "x" * 65535, 70_000), (Word.AGAIN, "y", -1))),
    ],
    ids=lambda value: f"{type(value).__name__} {len(str(value))}",
)
def test_values_are_written_as_the_engine_s_hash_has_them_written(value: Value) -> None:
    assert hashlib.sha256(encode(value)).digest() == get_hash_fn_by_name("sha256")(in_engine(value))


def test_who_has_the_tokens_knows_the_names_under_which_the_connector_registers_rows(engine: Engine) -> None:
    engine.node.holds = (0,)
    request = engine.request("a", 3 * ROW + 5, output=ROW)
    engine.run(limit=2 * ROW)
    chain = VllmChain(VllmHash.SHA256_CBOR, BLOCK, kv_cache_utils.get_none_hash_seed())
    names = EngineNames(ModelIdentity(model="m").digest())
    hashes = chain.block_hashes(list(request.all_token_ids))
    rows = names.run(row_hashes(hashes, ROW // BLOCK, 0, len(hashes) * BLOCK // ROW))
    registered = [names.run(part.hashes, part.first_row) for part in engine.node.registered]
    assert sum(len(run) for run in registered) == len(rows) == 4
    for run in registered:
        assert run == rows.slice(run.first_position, run.first_position + len(run))


@pytest.mark.parametrize("case", VECTORS["engine_chains"]["vllm"], ids=lambda case: case["name"])
def test_the_golden_vectors_are_the_engine_s(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    function = begin(VllmHash(case["algorithm"]), case["seed"], monkeypatch)
    media = tuple(VllmMedium(**medium) for medium in case["scope"]["media"])
    scope = VllmScope(**{**case["scope"], "media": media})
    request = request_of(function, case["tokens"], scope, case["block_tokens"])
    assert kv_cache_utils.NONE_HASH.hex() == case["start"]
    assert [value.hex() for value in request.block_hashes] == case["hashes"]
    assert [kv_cache_utils.maybe_convert_block_hash(value) for value in request.block_hashes] == case["event_hashes"]


def test_the_vectors_cover_every_algorithm_and_every_part_of_a_scope() -> None:
    cases = VECTORS["engine_chains"]["vllm"]
    for algorithm, part in itertools.product(ALGORITHMS, ("lora_name", "cache_salt", "media")):
        assert any(case["algorithm"] == algorithm and case["scope"][part] for case in cases)
