"""The type checker refuses what the block lifecycle forbids; each line names the error it must give."""

import re
from pathlib import Path

from mypy import api

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
    mutable.register()  # attr-defined
    mutable.clone()  # attr-defined
    complete.stage(names)  # attr-defined
    complete.clone()  # attr-defined
    held.stage(names)  # attr-defined
    held.register()  # attr-defined
    held.reset()  # attr-defined
    weak.release()  # attr-defined
    weak.keys  # attr-defined
    weak.upgrade().release()  # union-attr
    doomed.upgrade()  # attr-defined
    doomed.register()  # attr-defined
    complete.register().release()  # attr-defined
    mutable.stage(raw)  # arg-type
    StagedColumns(keys=[raw], parents=[], positions=[], identity=IdentityDigest(raw))  # list-item
    StagedColumns(keys=[], parents=[], positions=[], identity=raw)  # arg-type
    row: BlockId = 3  # assignment
    key: ContentKey = raw  # assignment
    generation: Generation = row  # assignment
    held.ids = (row,)  # misc
    complete.written(0)  # attr-defined
    held.written(0)  # attr-defined
    mutable.reset_on_release(True)  # attr-defined
    complete.reset_on_release(True)  # attr-defined
    weak.reset_on_release(True)  # attr-defined
    doomed.reset()  # attr-defined
    weak.split([0])  # attr-defined
    pool.allocate(1).ids  # attr-defined
    pool.match_scattered([key]).release()  # attr-defined
    pool.match_scattered([key]).places[0] + 1  # operator
    pool.find([raw])  # list-item
    registry.attach(raw, 1)  # arg-type
    registry.holds("g2", [key], GroupId(0))  # arg-type
    registry.attached(key, str)[0] + 1  # operator
    BlockPool(Tier.G2, 1, LruPolicy, duplicates=True)  # arg-type
"""

ROOT = Path(__file__).parents[2]


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
