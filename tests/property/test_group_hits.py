"""Random groups, windows and holes: hits over groups are those that trying every boundary finds."""

import random

import pytest

from blockyard.core.errors import KernelError
from blockyard.core.group_hits import needed_rows, restorable_cuts, restorable_rows
from blockyard.core.kv_groups import GroupKind, KvGroup
from blockyard.core.vocabulary import GroupId

FULL = KvGroup(engine_block_tokens=4)


def window(tokens: int) -> KvGroup:
    return KvGroup(group=GroupId(1), kind=GroupKind.SLIDING_WINDOW, engine_block_tokens=4, window_tokens=tokens)


def tokens_that_must_be_there(group: KvGroup, boundary: int) -> range:
    """By the definition, token by token: what attention reads after this many tokens."""
    return range(0 if group.kind is GroupKind.FULL else max(0, boundary - group.window_tokens), boundary)


def boundaries(groups: list[KvGroup], held: list[list[bool]], local_rows: int, block_tokens: int) -> list[int]:
    """Tries every boundary from the local rows on."""
    return [
        hit
        for hit in range(local_rows, max(local_rows, min(map(len, held))) + 1)
        if all(
            token // block_tokens < local_rows or column[token // block_tokens]
            for group, column in zip(groups, held, strict=True)
            for token in tokens_that_must_be_there(group, hit * block_tokens)
        )
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_hit_is_the_one_that_trying_every_boundary_finds(seed: int) -> None:
    chance = random.Random(seed)
    longer_than_local = 0
    for _ in range(300):
        block_tokens = chance.choice((1, 3, 4, 16))
        kinds = [FULL if chance.random() < 0.4 else window(chance.randint(1, 50)) for _ in range(chance.randint(1, 4))]
        rows = chance.randint(0, 14)
        share = chance.choice((0.5, 0.8, 0.95))
        held = [[chance.random() < share for _ in range(rows + chance.randint(0, 2))] for _ in kinds]
        local_rows = chance.randint(0, 16) if chance.random() < 0.5 else 0
        hit = restorable_rows(kinds, held, local_rows, block_tokens)
        found = boundaries(kinds, held, local_rows, block_tokens)
        assert hit == found[-1]
        assert restorable_cuts(kinds, held, local_rows, block_tokens) == [there - local_rows for there in found[1:]]
        longer_than_local += hit > local_rows
        for group, column in zip(kinds, held, strict=True):
            needed = needed_rows(group, hit, local_rows, block_tokens)
            read = {token // block_tokens for token in tokens_that_must_be_there(group, hit * block_tokens)}
            assert set(needed) == {row for row in read if row >= local_rows}
            assert all(column[row] for row in needed)
    assert longer_than_local > 50, "the cases are too dull to prove anything"


def test_a_full_group_ends_at_its_first_hole() -> None:
    assert restorable_rows([FULL], [[True, True, False, True]], 0, 4) == 2


def test_a_window_goes_on_behind_a_hole_that_it_has_passed() -> None:
    assert restorable_rows([window(8)], [[False, False, True, True]], 0, 4) == 4
    assert needed_rows(window(8), 4, 0, 4) == range(2, 4)


def test_a_window_and_a_full_group_pull_each_other_down() -> None:
    full = [True, True, True, False, True]
    holes = [True, True, False, True, True]
    assert restorable_rows([window(4), FULL], [holes, full], 0, 4) == 2


def test_what_the_engine_holds_itself_is_never_asked_for() -> None:
    assert restorable_rows([FULL, window(4)], [[False, False, True], [False, False, True]], 2, 4) == 3
    assert needed_rows(FULL, 3, 2, 4) == range(2, 3)
    assert needed_rows(FULL, 2, 5, 4) == range(2, 2)


def test_an_engine_that_holds_more_than_was_asked_keeps_what_it_has() -> None:
    assert restorable_rows([FULL], [[True]], 3, 4) == 3
    assert restorable_cuts([FULL], [[True]], 3, 4) == []
    assert restorable_rows([], [], 3, 4) == 3


def test_a_window_without_tokens_and_a_missing_column_are_refused() -> None:
    with pytest.raises(KernelError, match="a window has tokens"):
        restorable_rows([window(0)], [[True]], 0, 4)
    with pytest.raises(KernelError, match="one column per group"):
        restorable_rows([FULL, FULL], [[True]], 0, 4)
    with pytest.raises(KernelError, match="a block has tokens"):
        needed_rows(FULL, 1, 0, 0)
