"""The published golden vectors of ``docs/reference/hashing.md``: what other implementations test against."""

import json
from pathlib import Path
from typing import Any

import pytest

from blockyard.core.hashing import content_run
from blockyard.core.identity import ModelIdentity, MultimodalRun, SequenceScope
from blockyard.core.kvbm_hashing import (
    KvbmVersion,
    MediaRun,
    block_hashes,
    salt_hash,
    sequence_hashes,
)
from blockyard.core.lineage_hash import PositionalLineageHash, lineage_hashes
from blockyard.core.stored_key import stored_key
from blockyard.core.vocabulary import ContentKey, GroupId

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


@pytest.mark.parametrize("case", VECTORS["kvbm"]["lineage"])
def test_kvbm_lineage_hashes(case: dict[str, Any]) -> None:
    value = PositionalLineageHash.of(case["position"], int(case["current"], 16), int(case["parent"], 16))
    assert int(value) == int(case["value"], 16)
