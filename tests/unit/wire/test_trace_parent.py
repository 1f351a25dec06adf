"""W3C trace contexts: made, joined, and taken from peers that may send anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.wire.trace_parent import (
    NO_TRACE,
    TraceParent,
    child_of,
    flags_of,
    is_sampled,
    make_trace_parent,
    new_trace,
    parse_trace_parent,
    span_id_of,
    trace_id_of,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
SOUND = f"00-{TRACE}-{SPAN}-01"


def test_a_sound_context_is_taken_as_it_is() -> None:
    parent = parse_trace_parent(SOUND)
    assert parent == SOUND
    assert (trace_id_of(parent), span_id_of(parent), flags_of(parent)) == (TRACE, SPAN, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        SOUND[:-1],
        SOUND + "0",
        SOUND + "-00",
        SOUND + "\n",
        " " + SOUND,
        SOUND.upper(),
        SOUND.replace("-", "_"),
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"0x-{TRACE}-{SPAN}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0١",
        f"01-{TRACE}-{SPAN}-01-{'x' * 600}",
        f"01-{TRACE}-{SPAN}-01x",
        None,
        7,
        SOUND.encode(),
    ],
)
def test_anything_else_is_no_trace(text: object) -> None:
    assert parse_trace_parent(text) == NO_TRACE


@pytest.mark.parametrize("text", [f"01-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-comes-later"])
def test_a_later_version_is_read_as_far_as_it_is_known(text: str) -> None:
    assert parse_trace_parent(text) == SOUND


@given(st.text(max_size=80))
def test_no_text_breaks_the_reader(text: str) -> None:
    parent = parse_trace_parent(text)
    assert parent in (NO_TRACE, text)


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255))
def test_what_is_made_is_read_again(trace: int, span: int, flags: int) -> None:
    made = make_trace_parent(trace, span, flags)
    assert parse_trace_parent(made) == made
    assert (int(trace_id_of(made), 16), int(span_id_of(made), 16), flags_of(made)) == (trace, span, flags)


@pytest.mark.parametrize("sampled", [True, False])
def test_a_new_trace_says_whether_it_is_recorded(sampled: bool) -> None:
    made = new_trace(sampled=sampled)
    assert parse_trace_parent(made) == made
    assert is_sampled(made) is sampled
    assert new_trace() != new_trace()


@pytest.mark.parametrize("sampled", [True, False])
def test_a_child_is_another_span_of_the_same_trace(sampled: bool) -> None:
    parent = new_trace(sampled=sampled)
    child = child_of(parent)
    assert parse_trace_parent(child) == child
    assert trace_id_of(child) == trace_id_of(parent)
    assert span_id_of(child) != span_id_of(parent)
    assert is_sampled(child) is sampled


def test_nothing_comes_of_no_trace() -> None:
    assert child_of(NO_TRACE) == NO_TRACE
    assert (trace_id_of(NO_TRACE), span_id_of(NO_TRACE), is_sampled(NO_TRACE)) == ("", "", False)
    assert isinstance(NO_TRACE, str)
    assert TraceParent("") == NO_TRACE
