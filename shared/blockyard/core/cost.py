"""When loading a prefix pays: measured load times against measured prefill times, and where to cut a hit.

The rows of a hit are loaded from the start; every cut loads some of them and computes the rest of the prompt. Of all
cuts the fastest is taken, and no load at all where none is faster than computing everything. Loads are judged by the
slower quarter of what was measured, prefill by its middle, since a load that disappoints costs more than one left out.
Loading from G2 is taken for cheap until it is measured. Another tier is loaded from only once it and prefill are
measured; so that this ever happens, every few times a hit is cut short a small load goes on behind the cut.
Invariants: a cut never costs more than computing the whole prompt, by the lines in use, apart from the small loads of
exploration; the same observations and questions give the same answers.
Threading: owned by one thread; no clock, seconds come in.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final, final

import numpy as np
import numpy.typing as npt

from blockyard.core.errors import KernelError
from blockyard.core.miss_reason import MissReason
from blockyard.core.timing import Measurements
from blockyard.core.vocabulary import Tier
from blockyard.core.whole_numbers import is_some_whole

_TIERS: Final = (Tier.G2, Tier.G3, Tier.G4)
_EXPLORING_SIZES: Final = 4
"""Exploring loads have 1, 2, 4 and 8 times the smallest size in turn: equal sizes would not tell latency from speed."""
_LOAD_QUANTILE: Final = 0.75
_PREFILL_QUANTILE: Final = 0.5


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CostRules:
    """How careful the model is."""

    min_samples: int = 5
    """Measurements of a tier, and of prefill, before its line is trusted."""
    min_prefill_tokens: int = 32
    """Shorter prefills are not measured: their time is that of the step, not of its tokens."""
    explore_unmeasured_every: int = 4
    """Of the hits that are cut at a tier which is not measured, each n-th explores it; 0 = never."""
    explore_dear_every: int = 32
    """Of the hits that are cut at a tier which was too dear, each n-th measures it again; 0 = never."""
    explore_rows: int = 4
    """Rows of the smallest exploring load."""

    def __post_init__(self) -> None:
        """Refuse what is no number of something."""
        for field in fields(self):
            if not is_some_whole(getattr(self, field.name)):
                raise KernelError("a number is an integer", rule=field.name, given=str(getattr(self, field.name)))


@final
@dataclass(frozen=True, slots=True)
class Cut:
    """How much of a hit is loaded."""

    rows: int
    """Rows from the start of what was offered."""
    reason: MissReason
    """FULL_HIT where all that was offered is loaded; else why the rest is not."""
    exploring: bool = False
    """Part of it is loaded only to measure its tier."""


class CostModel:
    """Learns times and cuts hits."""

    def __init__(self, rules: CostRules | None = None) -> None:
        """Start without measurements."""
        self._rules: Final = rules or CostRules()
        minimum = max(1, self._rules.min_samples)
        self._loads: Final = {tier: Measurements(minimum, _LOAD_QUANTILE, through_zero=True) for tier in _TIERS}
        self._prefill: Final = Measurements(minimum, _PREFILL_QUANTILE, through_zero=False)
        self._cut_short: Final[Counter[tuple[Tier, MissReason]]] = Counter()
        self._explored: Final[Counter[Tier]] = Counter()

    # --- learning -------------------------------------------------------------------------------------------------
    def observe_load(self, tier: Tier, bytes_count: int, seconds: float, rows: int) -> None:
        """A load whose slowest source was ``tier`` brought these rows, from the request for it to the last byte.

        Loads that brought nothing, and tiers that are no source of loads, teach nothing.
        """
        if rows > 0 and tier in self._loads:
            self._loads[tier].add(bytes_count, seconds)

    def observe_prefill(self, position: int, tokens: int, seconds: float) -> None:
        """The engine computed ``tokens`` tokens of one prompt from this position on, in this time."""
        if tokens >= max(1, self._rules.min_prefill_tokens) and position >= 0:
            self._prefill.add(position + tokens / 2, seconds / tokens)

    # --- asking ---------------------------------------------------------------------------------------------------
    def samples(self, tier: Tier) -> int:
        """Measured loads from this tier that count at present."""
        return len(self._loads[tier]) if tier in self._loads else 0

    def load_seconds(self, tier: Tier, bytes_count: int) -> float | None:
        """Expected time of a load from this tier; None where it is not measured often enough."""
        line = self._loads[tier].line if tier in self._loads else None
        return None if line is None else float(line.at(np.array([bytes_count], np.float64))[0])

    def recompute_seconds(self, start: int, stop: int) -> float | None:
        """Expected time to compute the tokens from ``start`` up to ``stop``; None where too few were measured."""
        return None if self._prefill.line is None else float(self._recompute(np.array([start]), stop)[0])

    def choose_cut(
        self,
        sources: Sequence[Tier],
        local_tokens: int,
        block_tokens: int,
        row_bytes: int,
        prompt_tokens: int,
        allowed: Sequence[int] | None = None,
    ) -> Cut:
        """Choose how many of the rows that could be restored to load.

        Args:
            sources: tier of each row, from the first row that the engine does not hold wholly.
            local_tokens: tokens from the start that the engine holds.
            block_tokens: tokens of a row.
            row_bytes: bytes of a row, of all groups together.
            prompt_tokens: tokens of the prompt.
            allowed: numbers of rows at which the hit may end (see ``group_hits.restorable_cuts``); None = all.

        Raises:
            KernelError: a block without tokens, or a source that is no lower tier.
        """
        if block_tokens < 1 or not set(sources) <= set(_TIERS):
            raise KernelError("a hit is made of rows with tokens, in lower tiers", block_tokens=block_tokens)
        cuts = [cut for cut in sorted(set(allowed)) if 0 < cut <= len(sources)] if allowed is not None else None
        most = len(sources) if cuts is None else (cuts[-1] if cuts else 0)
        if not most:
            return Cut(0, MissReason.FULL_HIT if not sources else MissReason.WINDOW_NOT_RESTORABLE)
        tiers = np.fromiter(sources, np.int64, len(sources))
        trusted = self._trusted(tiers)
        choices = np.arange(trusted + 1) if cuts is None else np.array([0, *(cut for cut in cuts if cut <= trusted)])
        best = int(choices[-1])
        if self._prefill.line is not None:
            starts = np.maximum(local_tokens, (local_tokens // block_tokens + choices) * block_tokens)
            seconds = self._load(tiers, choices, row_bytes) + self._recompute(starts, prompt_tokens)
            best = int(choices[int(np.argmin(seconds))])
        if best == most:
            return Cut(best, MissReason.FULL_HIT if best == len(sources) else MissReason.WINDOW_NOT_RESTORABLE)
        reason = MissReason.NOT_ENOUGH_SAMPLES if best == choices[-1] else MissReason.TOO_DEAR
        further = self._explore(sources[best], reason, best, range(best + 1, most + 1) if cuts is None else cuts)
        return Cut(best, reason) if further is None else Cut(further, reason, exploring=True)

    # --- inside ---------------------------------------------------------------------------------------------------
    def _trusted(self, tiers: npt.NDArray[np.int64]) -> int:
        """Rows from the start whose load can be judged; those in G2 always."""
        known = [Tier.G2]
        if self._prefill.line is not None:
            known += [tier for tier in _TIERS[1:] if self._loads[tier].line is not None]
        is_known = np.zeros(int(max(_TIERS)) + 1, np.bool_)
        is_known[known] = True
        strange = ~is_known[tiers]
        return int(np.argmax(strange)) if strange.any() else len(tiers)

    def _load(
        self, tiers: npt.NDArray[np.int64], cuts: npt.NDArray[np.int64], row_bytes: int
    ) -> npt.NDArray[np.float64]:
        """Per cut, the time of loads from each tier one after the other; nothing for G2 until it is measured."""
        seconds = np.zeros(len(cuts), np.float64)
        for tier, measurements in self._loads.items():
            if measurements.line is not None:
                rows = np.concatenate(([0], np.cumsum(tiers == tier)))[cuts]
                seconds += np.where(rows, measurements.line.at(rows * float(row_bytes)), 0.0)
        return seconds

    def _recompute(self, starts: npt.NDArray[np.int64], stop: int) -> npt.NDArray[np.float64]:
        """Per start, the time to compute up to ``stop``: the area under the line of seconds per token by position."""
        line = self._prefill.line
        if line is None:
            return np.zeros(len(starts), np.float64)
        first = np.minimum(starts, stop).astype(np.float64)
        return line.level * (stop - first) + line.slope * (float(stop) ** 2 - first**2) / 2

    def _explore(self, tier: Tier, reason: MissReason, best: int, cuts: Sequence[int]) -> int | None:
        """Where a small load beyond the best cut ends, in the few cases in which it is made."""
        rules = self._rules
        dear = reason is MissReason.TOO_DEAR
        every = rules.explore_dear_every if dear else rules.explore_unmeasured_every
        self._cut_short[tier, reason] += 1
        if every < 1 or self._cut_short[tier, reason] % every:
            return None
        size = rules.explore_rows << (self._explored[tier] % _EXPLORING_SIZES)
        largest = rules.explore_rows << (_EXPLORING_SIZES - 1)
        further = [cut for cut in cuts if best < cut <= best + largest]
        if not further:
            return None
        self._explored[tier] += 1
        return max((cut for cut in further if cut <= best + size), default=further[0])
