"""Variables that begin like ours: settings, and what Kubernetes adds for services called blockyard."""

import pytest

from blockyard.core.errors import ConfigurationError
from blockyard.runtime.settings_source import load_settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BLOCKYARD_BLOCK_MANAGER_SERVICE_HOST", "10.96.0.7"),
        ("BLOCKYARD_BLOCK_MANAGER_SERVICE_PORT", "8801"),
        ("BLOCKYARD_BLOCK_MANAGER_SERVICE_PORT_HTTP", "8801"),
        ("BLOCKYARD_BLOCK_MANAGER_PORT", "tcp://10.96.0.7:8801"),
        ("BLOCKYARD_BLOCK_MANAGER_PORT_8801_TCP", "tcp://10.96.0.7:8801"),
        ("BLOCKYARD_BLOCK_MANAGER_PORT_8801_TCP_PROTO", "tcp"),
        ("BLOCKYARD_BLOCK_MANAGER_PORT_8801_TCP_PORT", "8801"),
        ("BLOCKYARD_BLOCK_MANAGER_PORT_8801_TCP_ADDR", "10.96.0.7"),
        ("BLOCKYARD_SERVICE_HOST", "10.96.0.7"),
        ("BLOCKYARD_PORT", "tcp://10.96.0.7:8801"),
    ],
)
def test_what_kubernetes_tells_of_a_service_is_refused_with_the_way_out(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match="enableServiceLinks: false") as raised:
        load_settings({name: value})
    assert raised.value.fields == {"key": name}


@pytest.mark.parametrize(
    "name", ["BLOCKYARD_HTTP__BLOCKMANAGER_PORT", "BLOCKYARD_HTTP_PORTS", "BLOCKYARD_HTTP__SERVICE_PORT"]
)
def test_a_misspelled_setting_is_no_such_thing(name: str) -> None:
    with pytest.raises(ConfigurationError, match="unknown setting") as raised:
        load_settings({name: "8801"})
    assert "nearest" in raised.value.fields
