"""Outcome of a proof run: the figures, and which expectations did not hold.

Invariants: the run is ``ok`` exactly when no expectation failed; every failed one is named with what was found.
Threading: values; the builder is owned by the run.
"""

import json
from dataclasses import dataclass, field

from blockyard.cli.engine_events import BlockReport, TierCounts


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """One phase as it went."""

    name: str
    seconds: float


@dataclass(slots=True, kw_only=True)
class DemoReport:
    """Figures of a run, filled in phase by phase; counts are in blocks unless named otherwise."""

    min_verified_blocks: int
    computed: int = 0
    wrong_bytes: int = 0
    verified: TierCounts = TierCounts()
    g4_cross_node_hits: int = 0
    after_kill_hits: int = 0
    warm_restart_g3_blocks: int = 0
    checksum_failures: int = 0
    g3_damage: BlockReport | None = None
    g4_damage: BlockReport | None = None
    disk_bytes: int = 0
    ready: bool = False
    """Whether everything had started."""
    seconds_to_ready: float = 0.0
    seconds: float = 0.0
    phases: list[PhaseResult] = field(default_factory=list)
    stopped_by: str = ""
    """Why the run ended early; empty when it did not."""

    def failures(self) -> list[str]:
        """Expectations that do not hold, one sentence each."""
        found = [f"the run ended early: {self.stopped_by}"] if self.stopped_by else []
        if not self.ready:
            return found  # nothing was tried, so nothing else is worth naming
        if self.wrong_bytes:
            found.append(f"an engine was given {self.wrong_bytes} wrong bytes; expected none")
        for tier in ("G2", "G3", "G4"):
            if (count := getattr(self.verified, tier)) < self.min_verified_blocks:
                found.append(f"{count} blocks verified from {tier}; expected at least {self.min_verified_blocks}")
        for count, sentence in (
            (self.g4_cross_node_hits, "B found none of A's blocks in G4"),
            (self.after_kill_hits, "B found none of A's blocks after A was killed"),
            (self.warm_restart_g3_blocks, "B's G3 was cold after its services were killed"),
        ):
            if not count:
                found.append(sentence)
        if self.checksum_failures != 2:
            found.append(f"{self.checksum_failures} checksum failures counted; expected 2, one for each flipped byte")
        found += _damage_failures("G3", self.g3_damage) + _damage_failures("G4", self.g4_damage)
        return found

    def to_text(self) -> str:
        """The summary for people."""
        failures = self.failures()
        lines = [
            "",
            f"wrong bytes              {self.wrong_bytes}",
            f"blocks computed          {self.computed}",
            f"blocks verified          G2 {self.verified.G2}, G3 {self.verified.G3}, G4 {self.verified.G4}",
            f"from A through G4 to B   {self.g4_cross_node_hits}, after A was killed {self.after_kill_hits}",
            f"from B's G3 after its services were killed   {self.warm_restart_g3_blocks}",
            f"damaged blocks found     {self.checksum_failures}",
            f"disk                     {self.disk_bytes / 2**20:.0f} MiB",
            f"seconds                  {self.seconds:.1f}, ready after {self.seconds_to_ready:.1f}",
            *(f"FAILED: {failure}" for failure in failures),
            "OK" if not failures else f"{len(failures)} expectations failed",
        ]
        return "\n".join(lines) + "\n"

    def to_json(self) -> str:
        """The summary as one JSON object."""
        failures = self.failures()
        return json.dumps(
            {
                "ok": not failures,
                "failures": failures,
                "wrong_bytes": self.wrong_bytes,
                "computed_blocks": self.computed,
                "verified_blocks": {"G2": self.verified.G2, "G3": self.verified.G3, "G4": self.verified.G4},
                "g4_cross_node_hits": self.g4_cross_node_hits,
                "after_kill_hits": self.after_kill_hits,
                "warm_restart_g3_blocks": self.warm_restart_g3_blocks,
                "checksum_failures": self.checksum_failures,
                "disk_bytes": self.disk_bytes,
                "seconds_to_ready": round(self.seconds_to_ready, 2),
                "seconds": round(self.seconds, 1),
                "phases": [{"name": phase.name, "seconds": round(phase.seconds, 1)} for phase in self.phases],
            }
        )


def _damage_failures(tier: str, report: BlockReport | None) -> list[str]:
    if report is None:
        return [f"no byte was flipped in {tier}"]
    if report.wrong_bytes:
        return [f"the byte flipped in {tier} reached an engine"]
    if report.status == "OK" and report.source == tier:
        return [f"the block damaged in {tier} was served from there"]
    return []
