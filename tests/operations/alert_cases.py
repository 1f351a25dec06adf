"""For every alert a course of samples at which it must fire, and one at which it must not.

Series are written as promtool writes them: ``0+5x60`` starts at 0 and rises by 5 a minute, sixty times.
Threading: values only.
"""

from dataclasses import dataclass
from typing import Final

_TARGET: Final = 'job="blockyard-block-manager", instance="m:1", node="a"'
_WORKER: Final = 'job="blockyard-offload-worker", instance="w:1", node="a"'
_REMOTE: Final = 'job="blockyard-remote-tier", instance="r:1", node="a"'
_INFO: Final = f'blockyard_build_info{{{_TARGET}, service="block-manager", version="1"}}'


_Series = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class AlertCase:
    """Courses of an alert; ``minutes`` is when it is looked at."""

    alert: str
    minutes: int
    fires: _Series
    quiet: _Series
    labels: tuple[tuple[str, str], ...] = (("node", "a"),)
    """Some of the labels with which it fires."""

    @property
    def by_node(self) -> bool:
        """Whether it speaks of one node."""
        return "node" in dict(self.labels) or "instance" in dict(self.labels)


def _of(metric: str, labels: str = "", target: str = _TARGET) -> str:
    return f"{metric}{{{', '.join(part for part in (labels, target) if part)}}}"


def _items(kind: str, status: str) -> str:
    return _of("blockyard_job_items_total", f'kind="{kind}", status="{status}"')


def _one(metric: str, labels: str, fires: str, quiet: str, target: str = _TARGET) -> tuple[_Series, _Series]:
    series = _of(metric, labels, target)
    return ((series, fires),), ((series, quiet),)


_UP: Final = _one("up", "", "1x5 0x10", "1x15")
_LOCAL: Final = _one("blockyard_check_ok", 'check="local-tiers"', "1x5 0x10", "1x5 0 1x9")
_READY: Final = _one("blockyard_ready", "", "0x15", "0x3 1x12")
_DEPENDENCY: Final = _one("blockyard_dependency_up", 'name="redis"', "0x15", "0 1x14", _REMOTE)
_TAKEN: Final = _one("blockyard_lease_state", 'state="taken"', "1x15", "0x15")
_DAMAGED: Final = _one("blockyard_checksum_failures_total", 'tier="g3"', "0x10 1x10", "3x20", _WORKER)
_ERRORS: Final = _one("blockyard_unhandled_errors_total", "", "0x10 1x10", "1x20")
_LEAKED: Final = _one("blockyard_leaked_blocks", 'tier="g2"', "0x10 2x10", "0x20")
_LOST: Final = _one("blockyard_events_overwritten_total", "", "0x10 40x10", "40x20")
_FAILED: Final = _one("blockyard_publish_failures_total", "", "0+1x20", "0x10 1x10")
_WRITES: Final = _one("blockyard_dropped_total", 'reason="index_write"', "0x10 3x10", "3x20", _REMOTE)
_SPANS: Final = _one("blockyard_spans_dropped_total", 'reason="queue_full"', "0+9x60", "9x60")
_MOVER: Final = _one("blockyard_mover_info", 'mover="plain", reason="fallback"', "1x20", "0x20", _WORKER)

CASES: Final = (
    AlertCase("BlockyardServiceDown", 12, *_UP, (("instance", "m:1"),)),
    AlertCase("BlockyardRemoteTierDown", 15, *_one("up", "", "1x5 0x10", "0x4 1x15", _REMOTE), (("instance", "r:1"),)),
    AlertCase(
        "BlockyardNotScraped",
        20,
        (('up{job="node-exporter", instance="n:1"}', "1x30"),),
        ((_of("up"), "_x5 1x2 _x12 0x10"),),
        (("severity", "warning"),),
    ),
    AlertCase("BlockyardLocalTiersAway", 12, *_LOCAL),
    AlertCase("BlockyardNotReady", 12, *_READY),
    AlertCase("BlockyardDependencyDown", 12, *_DEPENDENCY, (("name", "redis"), ("node", "a"))),
    AlertCase("BlockyardNameTaken", 12, *_TAKEN),
    AlertCase(
        "BlockyardRestarting",
        30,
        ((_INFO, "1x40"), (_of("blockyard_epoch"), "100x5 200x5 300x5 400x30")),
        ((_INFO, "1x40"), (_of("blockyard_epoch"), "100x5 200x5 300x30")),
        (("service", "block-manager"), ("node", "a")),
    ),
    AlertCase("BlockyardDamagedBlocks", 15, *_DAMAGED, (("tier", "g3"), ("node", "a"))),
    AlertCase("BlockyardUnhandledErrors", 15, *_ERRORS),
    AlertCase("BlockyardLeakedBlocks", 15, *_LEAKED, (("tier", "g2"),)),
    AlertCase("BlockyardEventsLost", 15, *_LOST),
    AlertCase(
        "BlockyardEventsStuck",
        20,
        ((_of("blockyard_events_waiting"), "0x5 50+50x20"), (_of("blockyard_events_published_total"), "900x30")),
        ((_of("blockyard_events_waiting"), "50x30"), (_of("blockyard_events_published_total"), "0+60x30")),
    ),
    AlertCase("BlockyardPublishFailures", 18, *_FAILED),
    AlertCase("BlockyardIndexWritesLost", 15, *_WRITES),
    AlertCase(
        "BlockyardStoresDropped",
        59,
        (
            (_of("blockyard_dropped_total", 'reason="g3_queue_full"'), "0+60x60"),
            (_of("blockyard_dropped_total", 'reason="gone_from_g2"'), "0+60x60"),
            (_of("blockyard_moved_blocks_total", 'edge="g1_g2"', _WORKER), "0+1000x60"),
        ),
        (
            (_of("blockyard_dropped_total", 'reason="g3_queue_full"'), "0+20x60"),
            (_of("blockyard_dropped_total", 'reason="cleared"'), "0+900x60"),
            (_of("blockyard_moved_blocks_total", 'edge="g1_g2"', _WORKER), "0+1000x60"),
        ),
    ),
    AlertCase(
        "BlockyardCopiesFail",
        45,
        (
            # A store that is full: it answers, and takes nothing.
            (_items("g4_put", "unknown"), "0+12x60"),
            (_items("g4_put", "skipped"), "0+500x60"),
            (_items("g4_put", "ok"), "0+80x60"),
            (_items("g2_g3", "ok"), "0+9000x60"),
        ),
        (
            (_items("g4_put", "unknown"), "0+8x60"),
            (_items("g4_put", "skipped"), "0+500x60"),
            (_items("g4_put", "ok"), "0+80x60"),
            # Normal where engines reuse memory, and after a burst of failures.
            (_items("g1_g2", "source_changed"), "0+50x60"),
            (_items("g1_g2", "ok"), "0+80x60"),
            (_items("g3_g2", "io_error"), "0x10 900x50"),
            (_items("g3_g2", "ok"), "0+80x60"),
        ),
        (("kind", "g4_put"), ("node", "a")),
    ),
    AlertCase(
        "BlockyardUnknownAnswers",
        30,
        (
            (_of("blockyard_lookup_blocks_total", 'tier="none", outcome="unknown"'), "0+10x40"),
            (_of("blockyard_lookup_blocks_total", 'tier="g2", outcome="hit"'), "0+90x40"),
        ),
        (
            (_of("blockyard_lookup_blocks_total", 'tier="none", outcome="unknown"'), "0+1x40"),
            (_of("blockyard_lookup_blocks_total", 'tier="g2", outcome="hit"'), "0+90x40"),
        ),
    ),
    AlertCase(
        "BlockyardLoadsTimeOut",
        40,
        (
            (_of("blockyard_load_blocks_total", 'tier="none", status="timeout"'), "0+10x50"),
            (_of("blockyard_load_blocks_total", 'tier="g4", status="ok"'), "0+90x50"),
        ),
        (
            (_of("blockyard_load_blocks_total", 'tier="none", status="timeout"'), "0+1x50"),
            (_of("blockyard_load_blocks_total", 'tier="g4", status="ok"'), "0+90x50"),
        ),
    ),
    AlertCase(
        "BlockyardNoHits",
        150,
        (
            (_of("blockyard_lookup_blocks_total", 'tier="none", outcome="miss"'), "0+600x160"),
            (_of("blockyard_lookup_blocks_total", 'tier="g2", outcome="hit"'), "0x160"),
        ),
        (
            (_of("blockyard_lookup_blocks_total", 'tier="none", outcome="miss"'), "0+600x160"),
            (_of("blockyard_lookup_blocks_total", 'tier="g2", outcome="hit"'), "0x50 1+1x110"),
        ),
    ),
    AlertCase(
        "BlockyardDiskTierChurning",
        75,
        (
            (_of("blockyard_evicted_blocks_total", 'tier="g3"'), "0+120x90"),
            (_of("blockyard_capacity_blocks", 'tier="g3"'), "1000x90"),
        ),
        (
            (_of("blockyard_evicted_blocks_total", 'tier="g3"'), "0+80x90"),
            (_of("blockyard_capacity_blocks", 'tier="g3"'), "1000x90"),
        ),
    ),
    AlertCase("BlockyardMoverFallback", 15, *_MOVER),
    AlertCase("BlockyardSpansDropped", 45, *_SPANS),
)
