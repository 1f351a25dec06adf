"""The published golden vectors of ``docs/reference/hashing.md``: what other implementations test against."""

import json
from pathlib import Path
from typing import Any

import pytest

from blockyard.core import sglang_chain, vllm_chain
from blockyard.core.engine_names import EngineNames
from blockyard.core.hashing import content_run
from blockyard.core.identity import ModelIdentity, MultimodalRun, SequenceScope
from blockyard.core.kvbm_hashing import (
    KvbmVersion,
    MediaRun,
    block_hashes,
    router_block_hash,
    salt_hash,
    sequence_hashes,
)
from blockyard.core.lineage_hash import PositionalLineageHash, lineage_hashes, positional_sequence_hash
from blockyard.core.stored_key import stored_key
from blockyard.core.vllm_chain import VllmChain, VllmHash, VllmMedium, VllmScope
from blockyard.core.vocabulary import ContentKey, GroupId, IdentityDigest

VECTORS = json.loads((Path(__file__).parents[3] / "docs" / "reference" / "hashing-vectors.json").read_text())


def named(cases: list[dict[str, Any]]) -> list[Any]:
    """Test parameters with readable ids."""
    return [pytest.param(case, id=case["name"]) for case in cases]


def scope_of(case: dict[str, Any]) -> SequenceScope:
    """Scope of a content key vector."""
    runs = tuple(
        MultimodalRun(
            first_token=run["first_token"],
            tokens=run["tokens"],
            content_digest=bytes.fromhex(run["content_digest"]),
        )
        for run in case["scope"]["multimodal"]
    )
    return SequenceScope(**{**case["scope"], "multimodal": runs})


@pytest.mark.parametrize("case", named(VECTORS["content_keys"]))
def test_content_keys(case: dict[str, Any]) -> None:
    identity = ModelIdentity(**case["identity"]).digest()
    scope = scope_of(case)
    assert identity.hex() == case["identity_digest"]
    assert scope.root(identity).hex() == case["root"]
    assert scope.tenant_digest().hex() == case["tenant_digest"]
    run = content_run(identity, scope, case["tokens"], case["block_tokens"])
    assert [run.digest(index).hex() for index in range(len(run))] == case["digests"]
    assert [key.hex() for key in run.keys()] == [digest[:32] for digest in case["digests"]]


@pytest.mark.parametrize("case", VECTORS["stored_keys"], ids=lambda case: f"group {case['group']}")
def test_stored_keys(case: dict[str, Any]) -> None:
    stored = stored_key(ContentKey(bytes.fromhex(case["key"])), GroupId(case["group"]))
    assert stored.hex() == case["stored_key"]


@pytest.mark.parametrize("case", named(VECTORS["kvbm"]["chains"]))
def test_kvbm_chains(case: dict[str, Any]) -> None:
    version, seed = KvbmVersion(case["version"]), case["salt_hash"]
    if "lora" in case:
        assert salt_hash(version, lora=case["lora"]) == seed
    media = [MediaRun(**run) for run in case.get("media", [])]
    blocks = block_hashes(case["tokens"], case["block_tokens"], seed, media)
    sequence = sequence_hashes(blocks, version, seed)
    assert blocks == case.get("block_hashes", blocks)
    assert sequence == case.get("sequence_hashes", sequence)
    lineage = [f"0x{int(value):032x}" for value in lineage_hashes(sequence)]
    assert lineage == case.get("lineage_hashes", lineage)


@pytest.mark.parametrize("case", VECTORS["kvbm"]["salt_hashes"])
def test_kvbm_salt_hashes(case: dict[str, Any]) -> None:
    assert salt_hash(KvbmVersion(case["version"]), lora=case["lora"], salt=case["salt"]) == case["value"]


@pytest.mark.parametrize("case", named(VECTORS["kvbm"]["router_block_hashes"]))
def test_kvbm_router_block_hashes(case: dict[str, Any]) -> None:
    assert router_block_hash(case["tokens"], case["media_hashes"], case["salt_hash"]) == case["value"]


@pytest.mark.parametrize("case", VECTORS["kvbm"]["lineage"], ids=lambda case: case["text"])
def test_kvbm_lineage_hashes(case: dict[str, Any]) -> None:
    parent = None if case["parent"] is None else int(case["parent"], 16)
    value = PositionalLineageHash.of(case["position"], int(case["current"], 16), parent)
    assert int(value) == int(case["value"], 16)
    assert PositionalLineageHash.from_bytes(value.to_bytes()) == value
    assert str(value) == case["text"]


@pytest.mark.parametrize("case", VECTORS["kvbm"]["positional_sequence_hashes"], ids=lambda case: case["position"])
def test_kvbm_positional_sequence_hashes(case: dict[str, Any]) -> None:
    sequence, block = int(case["sequence_hash"], 16), int(case["block_hash"], 16)
    assert positional_sequence_hash(case["position"], sequence, block) == int(case["value"], 16)


@pytest.mark.parametrize("case", named(VECTORS["engine_chains"]["vllm"]))
def test_vllm_chains(case: dict[str, Any]) -> None:
    media = tuple(VllmMedium(**medium) for medium in case["scope"]["media"])
    seed = case["seed"] if case["seed"] is not None else vllm_chain.DEFAULT_SEED
    chain = VllmChain(VllmHash(case["algorithm"]), case["block_tokens"], seed)
    hashes = chain.block_hashes(case["tokens"], VllmScope(**{**case["scope"], "media": media}))
    assert chain.start.hex() == case["start"]
    assert [value.hex() for value in hashes] == case["hashes"]
    assert [vllm_chain.event_hash(value) for value in hashes] == case["event_hashes"]


@pytest.mark.parametrize("case", named(VECTORS["engine_chains"]["sglang"]))
def test_sglang_chains(case: dict[str, Any]) -> None:
    tokens, page_tokens, salt = case["tokens"], case["page_tokens"], case["cache_salt"]
    if "media" in case:
        medium = case["media"]
        inside = slice(medium["first_token"], medium["first_token"] + medium["tokens"])
        assert tokens[inside] == sglang_chain.media_tokens(bytes.fromhex(medium["content"]), medium["tokens"])
    hashes = sglang_chain.page_hashes(tokens, page_tokens, sglang_chain.storage_seed(case["extra_key"], salt))
    assert [value.hex() for value in hashes] == case["hashes"]
    published = sglang_chain.page_hashes(tokens, page_tokens, sglang_chain.event_seed(salt))
    if case["extra_key"] is None:
        assert [sglang_chain.event_hash(value) for value in published] == case["event_hashes"]


@pytest.mark.parametrize("case", VECTORS["engine_chains"]["sglang_media"])
def test_sglang_media(case: dict[str, Any]) -> None:
    assert sglang_chain.media_tokens(bytes.fromhex(case["content"]), len(case["tokens"])) == case["tokens"]


@pytest.mark.parametrize("case", VECTORS["engine_chains"]["rows"])
def test_rows_named_by_an_engine(case: dict[str, Any]) -> None:
    names = EngineNames(IdentityDigest(bytes.fromhex(case["identity_digest"])))
    assert names.digest(bytes.fromhex(case["block_hash"])).hex() == case["digest"]


# --- what the file covers -----------------------------------------------------------------------------------------
def test_every_section_of_the_file_is_read_here() -> None:
    sections = {name: sorted(part) if isinstance(part, dict) else [] for name, part in VECTORS.items()}
    assert sections == {
        "content_keys": [],
        "stored_keys": [],
        "kvbm": ["chains", "lineage", "positional_sequence_hashes", "router_block_hashes", "salt_hashes"],
        "engine_chains": ["rows", "sglang", "sglang_media", "vllm"],
    }


@pytest.mark.parametrize("part", ["tenant", "salt", "lora", "multimodal"])
def test_content_keys_of_every_part_of_a_scope_are_in_the_file(part: str) -> None:
    assert any(case["scope"][part] for case in VECTORS["content_keys"])


@pytest.mark.parametrize("part", ["lora_name", "cache_salt", "media"])
@pytest.mark.parametrize("algorithm", list(VllmHash))
def test_hashes_of_vllm_of_every_part_of_a_scope_are_in_the_file(algorithm: VllmHash, part: str) -> None:
    cases = [case for case in VECTORS["engine_chains"]["vllm"] if case["algorithm"] == algorithm]
    assert any(case["scope"][part] for case in cases)
    assert any(case["seed"] is not None for case in cases)


@pytest.mark.parametrize("part", ["extra_key", "cache_salt", "media"])
def test_hashes_of_sglang_of_every_part_of_a_request_are_in_the_file(part: str) -> None:
    """The engine puts the LoRA of a request behind its extra key."""
    assert any(case.get(part) for case in VECTORS["engine_chains"]["sglang"])


def test_views_of_kvbm_of_lora_salt_media_and_both_generations_are_in_the_file() -> None:
    kvbm = VECTORS["kvbm"]
    assert {case["version"] for case in kvbm["chains"]} == set(KvbmVersion)
    assert any(case.get("media") for case in kvbm["chains"])
    assert {(bool(case["lora"]), bool(case["salt"])) for case in kvbm["salt_hashes"] if case["version"] == "v2"} == {
        *((False, False), (True, False), (False, True), (True, True)),
    }
    assert any(case["media_hashes"] for case in kvbm["router_block_hashes"])
