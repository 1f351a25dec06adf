"""Outcome of a proof run: the figures, and which expectations did not hold.

Invariants: the run is ``ok`` exactly when no expectation failed; every failed one is named with what was found. When
the run ended early, its cause is the failure: a check whose phase did not end proves nothing, and is named as not
reached.
Threading: values; the builder is owned by the run.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from blockyard.cli.engine_events import BlockReport, TierCounts
from blockyard.cli.venue import VenueKind


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """One phase as it went."""

    name: str
    seconds: float
    finished: bool = True
    """Whether it went to its end."""


@dataclass(slots=True, kw_only=True)
class DemoReport:
    """Figures of a run, filled in phase by phase; counts are in blocks unless named otherwise."""

    min_verified_blocks: int
    venue: VenueKind = VenueKind.LOCAL
    computed: int = 0
    wrong_bytes: int = 0
    verified: TierCounts = TierCounts()
    g4_cross_node_hits: int = 0
    after_kill_hits: int = 0
    warm_restart_g3_blocks: int = 0
    checksum_failures: int = 0
    g3_damage: BlockReport | None = None
    g4_damage: BlockReport | None = None
    unplanned_restarts: list[str] = field(default_factory=list)
    """Services that ended and were started again by somebody else, as container engines do."""
    disk_bytes: int = 0
    ready: bool = False
    """Whether everything had started."""
    seconds_to_ready: float = 0.0
    seconds: float = 0.0
    phases: list[PhaseResult] = field(default_factory=list)
    stopped_by: str = ""
    """Why the run ended early; empty when it did not."""

    def failures(self) -> list[str]:
        """Cause of an early end, and expectations that do not hold, one sentence each."""
        found = [f"the run ended early: {self.stopped_by}"] if self.stopped_by else []
        if self.wrong_bytes:
            found.append(f"an engine was given {self.wrong_bytes} wrong bytes; expected none")
        finished = self._finished()
        for check in _CHECKS:
            if check.phase in finished:
                found += check.failures(self)
        if not found and self.not_reached():
            found.append("the run did not reach its end")
        return found

    def not_reached(self) -> list[str]:
        """Checks that the run did not come to."""
        finished = self._finished()
        return [check.name for check in _CHECKS if check.phase not in finished]

    def _finished(self) -> set[str]:
        return {phase.name for phase in self.phases if phase.finished}

    def to_text(self) -> str:
        """The summary for people."""
        failures, missing = self.failures(), self.not_reached()
        end = [*(f"FAILED: {failure}" for failure in failures)]
        if missing:
            end.append(f"not reached: {', '.join(missing)}")
        if self.ready:
            end.append("OK" if not failures else f"{len(failures)} failed, {len(missing)} not reached")
        lines = ["", *(self._figures() if self.ready else []), *end]
        return "\n".join(lines) + "\n"

    def _figures(self) -> list[str]:
        return [
            f"wrong bytes              {self.wrong_bytes}",
            f"blocks computed          {self.computed}",
            f"blocks verified          G2 {self.verified.G2}, G3 {self.verified.G3}, G4 {self.verified.G4}",
            f"from A through G4 to B   {self.g4_cross_node_hits}, after A was killed {self.after_kill_hits}",
            f"from B's G3 after its services were killed   {self.warm_restart_g3_blocks}",
            f"damaged blocks found     {self.checksum_failures}",
            f"disk                     {self.disk_bytes / 2**20:.0f} MiB",
            f"seconds                  {self.seconds:.1f}, ready after {self.seconds_to_ready:.1f}",
        ]

    def to_json(self) -> str:
        """The summary as one JSON object."""
        failures = self.failures()
        return json.dumps(
            {
                "ok": not failures,
                "failures": failures,
                "not_reached": self.not_reached(),
                "venue": self.venue,
                "wrong_bytes": self.wrong_bytes,
                "computed_blocks": self.computed,
                "verified_blocks": {"G2": self.verified.G2, "G3": self.verified.G3, "G4": self.verified.G4},
                "g4_cross_node_hits": self.g4_cross_node_hits,
                "after_kill_hits": self.after_kill_hits,
                "warm_restart_g3_blocks": self.warm_restart_g3_blocks,
                "checksum_failures": self.checksum_failures,
                "unplanned_restarts": self.unplanned_restarts,
                "disk_bytes": self.disk_bytes,
                "seconds_to_ready": round(self.seconds_to_ready, 2),
                "seconds": round(self.seconds, 1),
                "phases": [{"name": phase.name, "seconds": round(phase.seconds, 1)} for phase in self.phases],
            }
        )


def _verified_failures(report: DemoReport) -> list[str]:
    counts = ((tier, getattr(report.verified, tier)) for tier in ("G2", "G3", "G4"))
    least = report.min_verified_blocks
    return [
        f"{count} blocks verified from {tier}; expected at least {least}" for tier, count in counts if count < least
    ]


def _checksum_failures(report: DemoReport) -> list[str]:
    if report.checksum_failures == 2:
        return []
    return [f"{report.checksum_failures} checksum failures counted; expected 2, one for each flipped byte"]


def _restart_failures(report: DemoReport) -> list[str]:
    return [f"{service} ended by itself and was started again" for service in report.unplanned_restarts]


def _damage_failures(tier: str, report: BlockReport | None) -> list[str]:
    if report is None:
        return [f"no byte was flipped in {tier}"]
    if report.wrong_bytes:
        return [f"the byte flipped in {tier} reached an engine"]
    if report.status == "OK" and report.source == tier:
        return [f"the block damaged in {tier} was served from there"]
    return []


@dataclass(frozen=True, slots=True)
class _Check:
    """One expectation and the phase whose end decides it."""

    phase: str
    name: str
    failures: Callable[[DemoReport], list[str]]


def _some(figure: Callable[[DemoReport], int], sentence: str) -> Callable[[DemoReport], list[str]]:
    return lambda report: [] if figure(report) else [sentence]


_CHECKS: Final = (
    _Check("share", "B finds A's blocks", _some(lambda r: r.g4_cross_node_hits, "B found none of A's blocks in G4")),
    _Check(
        "kill",
        "B serves A's blocks after A was killed",
        _some(lambda r: r.after_kill_hits, "B found none of A's blocks after A was killed"),
    ),
    _Check(
        "restart",
        "B's G3 is warm after a restart",
        _some(lambda r: r.warm_restart_g3_blocks, "B's G3 was cold after its services were killed"),
    ),
    _Check("damage-g3", "damage on disk is found", lambda report: _damage_failures("G3", report.g3_damage)),
    _Check("damage-g4", "damage in the object store is found", lambda report: _damage_failures("G4", report.g4_damage)),
    _Check("count", "enough blocks are verified", _verified_failures),
    _Check("count", "damage is counted", _checksum_failures),
    _Check("count", "no service ends by itself", _restart_failures),
)
