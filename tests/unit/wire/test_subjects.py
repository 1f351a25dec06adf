"""Names on NATS: one part for the namespace, one for the node, whatever the node is called."""

from hypothesis import given
from hypothesis import strategies as st

from blockyard.runtime.settings import NodeSection
from blockyard.wire.subjects import events_of, instance_key

_LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,4}[a-z0-9])?", fullmatch=True)
NAMES = st.lists(_LABEL, min_size=1, max_size=4).map(".".join)


def test_the_dots_of_a_machine_name_split_no_subject() -> None:
    name = "ip-10-0-0-1.eu-west-1.compute.internal"
    assert events_of("default", name) == "kv.events.default.ip-10-0-0-1_eu-west-1_compute_internal"
    assert instance_key("default", name) == "default.ip-10-0-0-1_eu-west-1_compute_internal"


def test_a_name_without_dots_is_written_as_it_is() -> None:
    assert (events_of("prod", "node-a"), instance_key("prod", "node-a")) == ("kv.events.prod.node-a", "prod.node-a")


@given(NAMES, NAMES)
def test_two_nodes_never_share_a_subject_or_a_key(one: str, other: str) -> None:
    assert NodeSection(name=one).name == one
    assert (events_of("a", one) == events_of("a", other)) is (one == other)
    assert (instance_key("a", one) == instance_key("a", other)) is (one == other)
    assert len(events_of("a", one).split(".")) == 4
