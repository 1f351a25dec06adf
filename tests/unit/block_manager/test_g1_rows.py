"""The G1 set against a plain model: rows of pages, of which each page belongs to one at most."""

from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.block_name import names_of
from blockyard.core.events import BlockScope
from blockyard.core.vocabulary import EngineBlockId, GroupId, Guard, IdentityDigest
from blockyard.testing.blocks import chain
from blockyard_block_manager.g1_set import G1Change, G1Row, G1Set

NAMES = names_of(chain("a", 3))
PAGES = 12

Step = tuple[str, list[G1Row], list[EngineBlockId]]

pages = st.lists(st.integers(0, PAGES - 1).map(EngineBlockId), min_size=1, max_size=3, unique=True).map(tuple)
rows = st.builds(
    lambda own, name, group, guard: G1Row(
        own, (Guard(guard),) * len(own), name, BlockScope(IdentityDigest(bytes(32)), group=GroupId(group))
    ),
    pages,
    st.sampled_from(NAMES),
    st.integers(0, 1),
    st.integers(0, 2),
)
steps: st.SearchStrategy[Step] = st.one_of(
    st.lists(rows, min_size=1, max_size=4).map(lambda batch: ("register", batch, [])),
    pages.map(lambda gone: ("deregister", [], list(gone))),
    st.just(("shrink", [], [])),
)


@given(st.lists(steps, max_size=30))
def test_rows_and_their_transitions_are_those_of_a_plain_list(script: list[Step]) -> None:
    found, model = G1Set(), list[G1Row]()
    for verb, batch, gone in script:
        before = {row.group_key for row in model}
        if verb == "register":
            change = found.register(batch)
            for row in batch:
                model = [held for held in model if not set(held.pages) & set(row.pages)] + [row]
        elif verb == "deregister":
            change = found.deregister(gone)
            model = [held for held in model if not set(held.pages) & set(gone)]
        else:
            assert found.shrink(2) == len(model[2:])  # of a set of which nobody hears any more
            change, model = G1Change(), model[2:]
            before = {row.group_key for row in model}
        after = {row.group_key for row in model}
        assert list(found) == model
        assert found.contents == after
        assert found.registered(map(EngineBlockId, range(PAGES))) == {page for row in model for page in row.pages}
        assert all(found.holds(row) for row in model)
        assert sorted(row.group_key for row in change.stored) == sorted(after - before)
        assert sorted(row.group_key for row in change.removed) == sorted(before - after)
