"""Every field of identity, scope and multimodal run counts, whichever fields there are, and none stands for another.

Fields and their types are read from the classes: a new field is tested without a line here.
"""

import itertools
import typing
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockyard.core.hashing import content_run
from blockyard.core.identity import ModelIdentity, MultimodalRun, SequenceScope

TOKENS: Final = range(1, 41)
BLOCK_TOKENS: Final = 4
_IDENTITY: Final = ModelIdentity(model="m").digest()
_RUN: Final = st.builds(
    MultimodalRun,
    first_token=st.integers(0, 39),
    tokens=st.integers(1, 60),
    content_digest=st.binary(min_size=1, max_size=4),
)
_VALUES: Final[dict[Any, st.SearchStrategy[Any]]] = {
    str: st.text("ab\0ü", max_size=3),
    int: st.integers(-3, 2**70),
    tuple[MultimodalRun, ...]: st.one_of(st.just(()), _RUN.map(lambda run: (run,))),
}
"""By type of the field: few texts, so that equal ones and parts of one another are common."""

Digest = Callable[[Any], bytes]


def of_identity(identity: ModelIdentity) -> bytes:
    return identity.digest()


def of_scope(scope: SequenceScope) -> bytes:
    """The last digest of a sequence that every run of these tests overlaps."""
    return content_run(_IDENTITY, scope, TOKENS, BLOCK_TOKENS).digests[-32:]


def of_run(run: MultimodalRun) -> bytes:
    return of_scope(SequenceScope(multimodal=(run,)))


DIGESTS: Final[dict[type, Digest]] = {ModelIdentity: of_identity, SequenceScope: of_scope}


def values(kind: type) -> st.SearchStrategy[Any]:
    """Values of the class with anything in all of its fields."""
    return st.builds(kind, **{name: _VALUES[hint] for name, hint in typing.get_type_hints(kind).items()})


def base(kind: type) -> Any:
    """Some value of the class."""
    return ModelIdentity(model="m") if kind is ModelIdentity else kind()


def names_of(kind: type, hint: Any = None) -> list[str]:
    """Fields in their order, all or those of one type."""
    return [name for name, found in typing.get_type_hints(kind).items() if hint is None or found == hint]


def pairs(hint: Any = None) -> list[Any]:
    """Every two fields of equal type of every class."""
    return [
        pytest.param(kind, first, second, id=f"{kind.__name__}.{first}-{second}")
        for kind in DIGESTS
        for first, second in itertools.combinations(names_of(kind, hint), 2)
        if typing.get_type_hints(kind)[first] == typing.get_type_hints(kind)[second]
    ]


def test_all_fields_have_a_type_that_is_tested() -> None:
    for kind in DIGESTS:
        assert [item.name for item in fields(kind)] == names_of(kind)
        assert {*typing.get_type_hints(kind).values()} <= {*_VALUES}


@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(kind, name, id=f"{kind.__name__}.{name}") for kind in DIGESTS for name in names_of(kind)],
)
@settings(max_examples=20)
@given(st.data())
def test_another_value_in_one_field_gives_another_digest(kind: type, name: str, data: st.DataObject) -> None:
    one = data.draw(values(kind))
    other = replace(one, **{name: data.draw(_VALUES[typing.get_type_hints(kind)[name]])})
    assert (DIGESTS[kind](one) == DIGESTS[kind](other)) == (one == other)


@pytest.mark.parametrize("kind", DIGESTS)
@given(st.data())
def test_digests_are_equal_exactly_where_all_fields_are(kind: type, data: st.DataObject) -> None:
    one, other = data.draw(values(kind)), data.draw(values(kind))
    assert (DIGESTS[kind](one) == DIGESTS[kind](other)) == (one == other)
    assert DIGESTS[kind](one) == DIGESTS[kind](replace(one))


@pytest.mark.parametrize(("kind", "first", "second"), pairs())
def test_two_fields_cannot_trade_their_values(kind: type, first: str, second: str) -> None:
    one, other = (5, 7) if typing.get_type_hints(kind)[first] is int else ("p", "q")
    value = base(kind)
    there, back = replace(value, **{first: one, second: other}), replace(value, **{first: other, second: one})
    assert DIGESTS[kind](there) != DIGESTS[kind](back)


@pytest.mark.parametrize(("kind", "first", "second"), pairs(str))
def test_no_character_can_move_from_one_text_to_another(kind: type, first: str, second: str) -> None:
    split = [replace(base(kind), **{first: "abcd"[:at], second: "abcd"[at:]}) for at in range(5)]
    assert len({DIGESTS[kind](value) for value in split}) == 5


@given(_RUN, _RUN)
def test_every_field_of_a_multimodal_run_counts(one: MultimodalRun, other: MultimodalRun) -> None:
    for item in fields(MultimodalRun):
        changed = replace(one, **{item.name: getattr(other, item.name)})
        assert (of_run(changed) == of_run(one)) == (changed == one)
    traded = replace(one, first_token=one.tokens % 40, tokens=one.first_token + 1)
    assert (of_run(traded) == of_run(one)) == (traded == one)


@given(_RUN, st.integers(0, 39))
def test_tokens_of_placeholders_count_too(run: MultimodalRun, place: int) -> None:
    scope = SequenceScope(multimodal=(run,))
    tokens = [*TOKENS]
    tokens[place] = 0
    assert content_run(_IDENTITY, scope, tokens, BLOCK_TOKENS).digests[-32:] != of_scope(scope)
