"""Names of rows whose blocks the engine names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.engine_names import EngineNames, row_hashes
from blockyard.core.errors import RequestError
from blockyard.core.identity import ModelIdentity


def test_a_row_is_named_by_identity_and_the_hash_of_its_last_block() -> None:
    names = EngineNames(ModelIdentity(model="m").digest())
    others = EngineNames(ModelIdentity(model="n").digest())
    assert names.digest(b"h" * 32) == names.digest(b"h" * 32)
    assert len({names.digest(b"h" * 32), names.digest(b"i" * 32), others.digest(b"h" * 32)}) == 3


@given(st.integers(1, 8), st.integers(0, 6), st.integers(0, 6))
def test_parts_of_a_chain_have_the_names_of_the_whole(per_row: int, first: int, more: int) -> None:
    names = EngineNames(ModelIdentity(model="m").digest())
    hashes = [index.to_bytes(32, "big") for index in range(per_row * 12 + 3)]
    whole = names.run(row_hashes(hashes, per_row, 0, 12))
    part = names.run(row_hashes(hashes, per_row, first, first + more), first)
    assert len(whole) == 12
    assert part == whole.slice(first, first + more)


def test_a_run_whose_place_in_the_chain_nobody_named_is_refused() -> None:
    names = EngineNames(ModelIdentity(model="m").digest())
    too_few = row_hashes([b"h" * 32] * 6, 2, 4, 6)
    with pytest.raises(RequestError, match="row before"):
        names.run(too_few, 4)
    assert len(names.run([])) == 0
