"""Names that a node may have: those of machines in a cluster."""

import pytest

from blockyard.core.errors import ConfigurationError
from blockyard.runtime.settings_source import load_settings

LONGEST = ".".join(["a" * 63] * 3 + ["a" * 61])


@pytest.mark.parametrize(
    "name",
    [
        "node",
        "0",
        "ip-10-0-0-1.eu-west-1.compute.internal",
        "gke-pool--1a.c.project.internal",
        LONGEST,
        "a" * 253,
    ],
)
def test_the_name_of_a_machine_is_taken(name: str) -> None:
    assert load_settings({"BLOCKYARD_NODE__NAME": name}).node.name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "-a",
        "a-",
        "a.-b",
        "a-.b",
        "A.b",
        "a_b",
        "a b",
        "a*",
        "a.>",
        "\u00e4",
        "a\n",
        LONGEST + "a",
    ],
)
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="must be a name like") as raised:
        load_settings({"BLOCKYARD_NODE__NAME": name})
    assert raised.value.fields == {"key": "node.name"}
