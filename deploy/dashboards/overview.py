"""The first dashboard: is Blockyard worth it, and is it well?

Threading: values only.
"""

from typing import Final

from deploy.dashboards.panels import NONE_IS_GOOD, Board, Column, Query, Row, Unit, lines, stat, table
from deploy.dashboards.queries import (
    EMPTY_ROWS,
    NODE,
    counted,
    nonzero,
    now,
    of_processes,
    per_second,
    quantile,
    readiness,
    series,
    share,
    shares,
    sized,
)

_LOOKED_UP: Final = "blockyard_lookup_blocks_total"
_LOADED: Final = "blockyard_load_blocks_total"
_HIT: Final = 'outcome="hit"'
_OK: Final = 'status="ok"'

_WORTH: Final = Row(
    "Is it worth it",
    (
        stat(
            "Hit share",
            "Share of the blocks that engines asked for and some tier had. What is good depends on how much the "
            "prompts share: compare with last week. Low: see below which tier does not hit, and on the tiers "
            "dashboard how long blocks stay in it.",
            Unit.SHARE,
            Query(share(per_second(_LOOKED_UP, labels=_HIT), per_second(_LOOKED_UP)), "hits"),
        ),
        stat(
            "Tokens not computed",
            "Tokens per second whose KV cache was loaded instead of computed. Good: a large part of what your engines "
            "compute per second. Zero with hits: engines look blocks up and do not load them.",
            Unit.TOKENS_PER_SECOND,
            Query(sized(_LOADED, "blockyard_block_tokens", labels=_OK, rate=True), "tokens"),
        ),
        stat(
            "Bytes to engines",
            "Payload per second copied from host memory into engine memory. It follows the load of the engines.",
            Unit.BYTES_PER_SECOND,
            Query(per_second("blockyard_moved_bytes_total", labels='edge="g2_g1"'), "to engines"),
        ),
        stat(
            "Damaged blocks found",
            "Blocks in the time shown whose bytes did not match their checksum. None of them was served: each was a "
            "miss. 0 is good. More: the tiers dashboard says which tier, the runbook of BlockyardDamagedBlocks the "
            "rest.",
            Unit.COUNT,
            Query(counted("blockyard_checksum_failures_total"), "damaged"),
            steps=NONE_IS_GOOD,
        ),
        stat(
            "Nodes ready",
            "Nodes all of whose services are ready, and all nodes that Prometheus knows. Equal is good. Otherwise the "
            "table below names the node, and its /readyz says what is missing and what still works.",
            Unit.COUNT,
            Query(f"sum({readiness(NODE, how='min')})", "ready"),
            Query(f"count({readiness(NODE, how='min')})", "all"),
        ),
        stat(
            "Engines",
            "Engines connected to the nodes shown. Good: as many as you run. The missing ones compute everything "
            "themselves; their logs say why they have no connection.",
            Unit.COUNT,
            Query(now("blockyard_sessions"), "engines"),
        ),
    ),
)

_SOURCES: Final = Row(
    "Where blocks come from",
    (
        lines(
            "Blocks asked for, by answer",
            "The best tier that had a block; miss where none had it; unknown where one could not be asked. Good: "
            "little miss, no unknown. Much g4 and little g2: host memory is small for what is in use. Lasting "
            "unknown: a source is away or slow, see the servers on the tiers dashboard.",
            Unit.SHARE,
            Query(shares(per_second(_LOOKED_UP, "tier", _HIT), per_second(_LOOKED_UP)), "{{tier}}"),
            Query(
                nonzero(shares(per_second(_LOOKED_UP, "outcome", 'outcome!="hit"'), per_second(_LOOKED_UP))),
                "{{outcome}}",
            ),
            stacked=True,
            maximum=1,
        ),
        lines(
            "Blocks served, by source",
            "Blocks loaded into engine memory, by the tier their bytes came from. It follows the load of the engines. "
            "If it falls while hits do not, see loads that failed.",
            Unit.BLOCKS_PER_SECOND,
            Query(per_second(_LOADED, "tier", _OK), "{{tier}}"),
            stacked=True,
        ),
        lines(
            "Duration of loads",
            "From the request of an engine to the last byte in its memory, over all tiers. Good while p99 is below "
            "the time it takes to compute the same blocks. Above: see batches per edge on the tiers dashboard, and "
            "which tier the loads come from.",
            Unit.SECONDS,
            *(Query(quantile(level, "blockyard_load_seconds"), f"p{level * 100:.0f}") for level in (0.5, 0.9, 0.99)),
        ),
        lines(
            "Blocks that could not be loaded",
            "Blocks that engines had to compute after they had asked for them, by reason. Few is good; some not_found "
            "and stale are normal, since blocks leave between lookup and load. timeout: a tier is slow. corrupt: "
            "damage was found. unknown: a worker is away. Nothing is shown while there is none.",
            Unit.BLOCKS_PER_SECOND,
            Query(nonzero(per_second(_LOADED, "status", 'status!="ok"')), "{{status}}"),
            stacked=True,
        ),
        lines(
            "What ended the hits of requests",
            "Requests by the reason why not more of their prompt was loaded, as engines report it. Good: full_hit, "
            "and not_stored for what is new. unknown, lookup_late: the node could not say in time. too_dear: "
            "computing is faster than loading here.",
            Unit.PER_SECOND,
            Query(nonzero(per_second("blockyard_request_decisions_total", "reason")), "{{reason}}"),
            stacked=True,
        ),
        lines(
            "Nodes that load",
            "Nodes at which loads are switched on. Good: all of them. Where an operator switched loads off, engines "
            "compute everything.",
            Unit.COUNT,
            Query(now("blockyard_loading_enabled"), "nodes"),
        ),
    ),
)


def _filled(tier: str) -> str:
    held = now("blockyard_blocks", NODE, f'tier="{tier}", {EMPTY_ROWS}')
    return share(held, now("blockyard_capacity_blocks", NODE, f'tier="{tier}"'))


_HEALTH: Final = Row(
    "Is it well",
    (
        lines(
            "Bytes moved between tiers",
            "Payload per second by edge: g1_g2, g2_g3 and g2_g4 store; g3_g2, g4_g2 and g2_g1 load. Good: loads are "
            "of the order of stores. Stores without loads for long: nobody comes back to what is kept.",
            Unit.BYTES_PER_SECOND,
            Query(per_second("blockyard_moved_bytes_total", "edge"), "{{edge}}"),
        ),
        lines(
            "Checks that fail",
            "Services per check of /readyz that does not hold. 0 is good. local-tiers: a node serves nothing. nats, "
            "redis, s3, remote-tier: its local tiers go on. The runbook of BlockyardNotReady says what to do.",
            Unit.COUNT,
            Query(f"sum by (check) (1 - {series('blockyard_check_ok')})", "{{check}}"),
        ),
        table(
            "Nodes",
            "One line per node. Good: three services ready, and your engines connected. A full G2 or G3 is normal: "
            "blocks stay until others need the room. A last start of a moment ago that nobody ordered: see its log.",
            (
                Column("Namespace", "namespace"),
                Column("Node", "node"),
                Column("Services ready", 0),
                Column("Engines", 1),
                Column("Hit share", 2, Unit.SHARE),
                Column("Served", 3, Unit.BLOCKS_PER_SECOND),
                Column("G2 filled", 4, Unit.SHARE),
                Column("G3 filled", 5, Unit.SHARE),
                Column("Last start", 6, Unit.AGO),
            ),
            Query(readiness(NODE, how="sum")),
            Query(now("blockyard_sessions", NODE)),
            Query(share(per_second(_LOOKED_UP, NODE, _HIT), per_second(_LOOKED_UP, NODE))),
            Query(per_second(_LOADED, NODE, _OK)),
            Query(_filled("g2")),
            Query(_filled("g3")),
            Query(f"1000 * {of_processes('process_start_time_seconds', NODE, how='max')}"),
        ),
    ),
)

OVERVIEW: Final = Board(
    name="overview",
    title="Blockyard / Overview",
    description="Is it worth it, and is it well?",
    rows=(_WORTH, _SOURCES, _HEALTH),
)
