"""Bucket and account of the object store: what no server would take is refused before one is asked."""

import pytest

from blockyard.core.errors import ConfigurationError
from blockyard.runtime.settings_source import load_settings


@pytest.mark.parametrize("name", ["abc", "a.b-c.d", "b--c", "0bucket9", "a" * 63])
def test_the_name_of_a_bucket_is_taken(name: str) -> None:
    assert load_settings({"BLOCKYARD_G4__BUCKET": name}).g4.bucket == name


@pytest.mark.parametrize("name", ["", "ab", "a" * 64, "Abc", "a_b", ".abc", "abc-", "a..b", "192.168.1.1", "abc\n"])
def test_what_is_no_name_of_a_bucket_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="must be the name of a bucket") as raised:
        load_settings({"BLOCKYARD_G4__BUCKET": name})
    assert raised.value.fields == {"key": "g4.bucket"}


@pytest.mark.parametrize(("given", "missing"), [("ACCESS", "g4.secret_key"), ("SECRET", "g4.access_key")])
def test_half_an_account_is_refused(given: str, missing: str) -> None:
    with pytest.raises(ConfigurationError, match="missing") as raised:
        load_settings({f"BLOCKYARD_G4__{given}_KEY": "hush"})
    assert raised.value.fields == {"key": missing}
    assert "hush" not in str(raised.value)
