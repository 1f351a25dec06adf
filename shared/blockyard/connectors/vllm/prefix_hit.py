"""How much of a prompt to load: from the answer of a lookup, what the engine holds itself, and measured times.

Rows are counted from the start of the prompt. The engine may hold the first part of the row at which a hit begins;
that row is loaded all the same, into the pages that the engine lacks.
Invariants: a hit ends at a whole row, within the prompt; the same answer, local tokens and measurements give the same
hit. Threading: pure, but for what the cost model notes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, final

from blockyard.core.cost import CostModel
from blockyard.core.group_hits import restorable_cuts, restorable_rows
from blockyard.core.kv_groups import GroupKind, KvGroup
from blockyard.core.miss_reason import MissReason
from blockyard.core.vocabulary import Availability, Tier

Found = tuple[tuple[Availability, ...], ...]
_TIER_OF: Final = {Availability.G2: Tier.G2, Availability.G3: Tier.G3, Availability.G4: Tier.G4}


@final
@dataclass(frozen=True, slots=True)
class PrefixHit:
    """What is loaded for a request."""

    local_tokens: int
    first_row: int
    """Where the load begins: the row that the engine does not hold wholly."""
    stop_row: int
    tokens: int
    """Tokens beyond the local ones; 0 where nothing is loaded."""
    reason: MissReason
    found_tokens: dict[str, int]
    """Per tier label: tokens that could be restored beyond the local ones, by their slowest source."""


def nothing(local_tokens: int, block_tokens: int, reason: MissReason) -> PrefixHit:
    """No hit, for this reason."""
    row = local_tokens // block_tokens
    return PrefixHit(local_tokens, row, row, 0, reason, {})


def prefix_hit(
    groups: Sequence[KvGroup],
    found: Found,
    local_tokens: int,
    prompt_tokens: int,
    block_tokens: int,
    row_bytes: int,
    cost: CostModel | None,
) -> PrefixHit:
    """Decide.

    Args:
        groups: KV groups of the model.
        found: per group and row of the prompt, where it is.
        local_tokens: tokens from the start that the engine holds, whole engine blocks.
        prompt_tokens: tokens to be computed or loaded; a hit may cover them all.
        block_tokens: tokens of a row.
        row_bytes: bytes of a row, of all groups together.
        cost: measured times; None loads all that can be restored.
    """
    local_rows = local_tokens // block_tokens
    rows = min(prompt_tokens // block_tokens, *(len(column) for column in found))
    if rows == 0:
        return nothing(local_tokens, block_tokens, MissReason.SHORTER_THAN_A_BLOCK)
    if rows <= local_rows:
        return nothing(local_tokens, block_tokens, MissReason.FULL_HIT)
    sources, cuts = _sources(groups, found, local_rows, rows, block_tokens)
    if cost is None:
        loaded, reason = (len(sources) if cuts is None else max(cuts, default=0)), MissReason.FULL_HIT
    else:
        cut = cost.choose_cut(sources, local_tokens, block_tokens, row_bytes, prompt_tokens, cuts)
        loaded, reason = cut.rows, cut.reason
    stop = local_rows + loaded
    if reason is MissReason.FULL_HIT and stop < rows:
        reason = _why_not(found, stop)
    counted = {tier.label: sources.count(tier) * block_tokens for tier in sorted(set(sources))}
    if sources:
        counted[sources[0].label] -= local_tokens % block_tokens
    if stop <= local_rows:
        return PrefixHit(local_tokens, local_rows, local_rows, 0, reason, counted)
    return PrefixHit(local_tokens, local_rows, stop, stop * block_tokens - local_tokens, reason, counted)


def _sources(
    groups: Sequence[KvGroup], found: Found, local_rows: int, rows: int, block_tokens: int
) -> tuple[list[Tier], list[int] | None]:
    """Tier of each row that could be restored beyond the local ones, and where a hit may be cut (None: anywhere)."""
    if len(groups) == 1 and groups[0].kind is GroupKind.FULL:
        # By far the most common model: the rows up to the first that is not there.
        (column,) = found
        return [_TIER_OF[where] for where in takewhile(_TIER_OF.__contains__, column[local_rows:rows])], None
    held = [[where.is_hit for where in column[:rows]] for column in found]
    restorable = restorable_rows(groups, held, local_rows, block_tokens)
    sources = [_slowest(found, row) for row in range(local_rows, restorable)]
    return sources, restorable_cuts(groups, held, local_rows, block_tokens)


def _slowest(found: Found, row: int) -> Tier:
    return max((_TIER_OF[column[row]] for column in found if column[row].is_hit), default=Tier.G2)


def _why_not(found: Found, row: int) -> MissReason:
    answers = [column[row] for column in found]
    if all(answer.is_hit for answer in answers):
        return MissReason.WINDOW_NOT_RESTORABLE
    if Availability.UNKNOWN in answers:
        return MissReason.UNKNOWN_SOURCE
    return MissReason.NOT_STORED
