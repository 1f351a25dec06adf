"""The type checker refuses what the block lifecycle forbids; each line names the error it must give."""

import re
from inspect import getmembers
from pathlib import Path

import pytest
from mypy import api

from blockyard.core.handles import CompleteBlocks, DoomedBlocks, ImmutableBlocks, MutableBlocks, WeakBlocks

HOLDERS: dict[str, tuple[type, set[str]]] = {
    "mutable": (MutableBlocks, {"release", "split", "stage", "written"}),
    "complete": (CompleteBlocks, {"register", "release", "reset"}),
    "held": (
        ImmutableBlocks,
        {"clone", "downgrade", "facts", "keys", "release", "reset_on_release", "split", "tier"},
    ),
    "weak": (WeakBlocks, {"upgrade"}),
    "doomed": (DoomedBlocks, {"cut", "facts", "release", "split"}),
}
"""All that a holder may do or read in each state, besides rows and generations."""
VERBS = sorted(set().union(*(verbs for _, verbs in HOLDERS.values())))
NOT_OFFERED = [
    f"    {holder}.{verb}  # attr-defined"
    for holder, (_, verbs) in HOLDERS.items()
    for verb in VERBS
    if verb not in verbs
]

SNIPPET = """
from blockyard.core.block_facts import StagedColumns
from blockyard.core.handles import CompleteBlocks, DoomedBlocks, ImmutableBlocks, MutableBlocks, WeakBlocks
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.pool import BlockPool
from blockyard.core.registry import BlockRegistry
from blockyard.core.vocabulary import BlockId, ContentKey, Generation, GroupId, IdentityDigest, Tier


def legal(mutable: MutableBlocks, names: StagedColumns) -> WeakBlocks:
    with mutable.stage(names, [0, 1]).register().blocks as held:
        return held.downgrade()


class Another(MutableBlocks):  # misc
    ...


def illegal(
    mutable: MutableBlocks,
    complete: CompleteBlocks,
    held: ImmutableBlocks,
    weak: WeakBlocks,
    doomed: DoomedBlocks,
    names: StagedColumns,
    raw: bytes,
    pool: BlockPool,
    registry: BlockRegistry,
) -> None:
    weak.upgrade().release()  # union-attr
    complete.register().release()  # attr-defined
    mutable.stage(raw)  # arg-type
    StagedColumns(keys=[raw], parents=[], positions=[], identity=IdentityDigest(raw))  # list-item
    StagedColumns(keys=[], parents=[], positions=[], identity=raw)  # arg-type
    row: BlockId = 3  # assignment
    key: ContentKey = raw  # assignment
    generation: Generation = row  # assignment
    held.ids = (row,)  # misc
    pool.allocate(1).ids  # attr-defined
    pool.match_scattered([key]).release()  # attr-defined
    pool.match_scattered([key]).places[0] + 1  # operator
    pool.find([raw])  # list-item
    registry.attach(raw, 1)  # arg-type
    registry.holds("g2", [key], GroupId(0))  # arg-type
    registry.attached(key, str)[0] + 1  # operator
    BlockPool(Tier.G2, 1, LruPolicy, duplicates=True)  # arg-type
    MutableBlocks.offer = doomed  # attr-defined
"""
SNIPPET += "\n".join(NOT_OFFERED)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("holder", HOLDERS)
def test_each_state_offers_its_own_verbs_and_no_other(holder: str) -> None:
    state, verbs = HOLDERS[holder]
    offered = {name for name, _ in getmembers(state) if not name.startswith("_")}
    assert offered == verbs | {"generations", "ids"}


def test_illegal_transitions_do_not_type_check(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    # The project's own settings; its cache too, as a cold one costs seconds.
    output, _, status = api.run(
        ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache"), str(snippet)]
    )
    expected = {
        number: match[1]
        for number, line in enumerate(SNIPPET.splitlines(), 1)
        if (match := re.search(r"# ([a-z-]+)$", line))
    }
    found = {
        int(match[1]): match[2] for match in re.finditer(r"^.*snippet\.py:(\d+): error: .*\[([a-z-]+)\]$", output, re.M)
    }
    assert status == 1
    assert found == expected
