"""What the identity of an engine says of its groups and ranks: equal text only where rows are laid out alike."""

from blockyard.core.kv_groups import KvGroup, common_block_tokens, group_spec, parallel_shapes
from blockyard.core.vocabulary import GroupId


def groups(*tokens: int, replicated: bool = False) -> tuple[KvGroup, ...]:
    return tuple(
        KvGroup(group=GroupId(number), engine_block_tokens=size, replicated=replicated)
        for number, size in enumerate(tokens)
    )


def test_groups_with_engine_blocks_of_one_size_need_not_name_it() -> None:
    assert group_spec(groups(16)) == group_spec(groups(32)) == "full"
    assert group_spec(groups(16, 16)) == "full,full"


def test_models_whose_groups_cut_rows_otherwise_have_other_texts() -> None:
    cut = [groups(16, 32), groups(32, 16), groups(16, 64)]
    assert [common_block_tokens(model) for model in cut] == [16] * 3, "this alone does not tell them apart"
    assert len({group_spec(model) for model in cut}) == 3
    assert group_spec(cut[0]) == "full@16,full@32"


def test_only_rows_that_no_rank_cuts_may_be_shared_by_any_number_of_ranks() -> None:
    assert parallel_shapes(groups(16), 2) == ("tp2",)
    assert parallel_shapes(groups(16, replicated=True), 2) == ("tp2", "canonical")
