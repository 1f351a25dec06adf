"""The second dashboard: what the tiers hold, what moves between them, and the servers and processes below.

Threading: values only.
"""

from typing import Final

from deploy.dashboards.panels import (
    UP_OR_DOWN,
    Board,
    Color,
    Column,
    Kind,
    Panel,
    Query,
    Row,
    Step,
    Unit,
    lines,
    table,
)
from deploy.dashboards.queries import (
    EMPTY_ROWS,
    NODE,
    NODE_LEGEND,
    nonzero,
    now,
    of_processes,
    per_second,
    quantile,
    share,
    sized,
)

_THIRD: Final = 8
_QUARTER: Final = 6
_LOCAL: Final = 'tier=~"g2|g3"'

_HELD: Final = Row(
    "What the tiers hold",
    (
        Panel(
            kind=Kind.BARGAUGE,
            title="Filled",
            description="Share of the slots of each node's G2 and G3 that hold a block. Full is normal and good: "
            "blocks stay until others need the room. A tier that never fills is larger than what is in use.",
            unit=Unit.SHARE,
            queries=(
                Query(
                    share(
                        now("blockyard_blocks", f"{NODE}, tier", f"{_LOCAL}, {EMPTY_ROWS}"),
                        now("blockyard_capacity_blocks", f"{NODE}, tier", _LOCAL),
                    ),
                    f"{NODE_LEGEND} {{{{tier}}}}",
                ),
            ),
            width=_THIRD,
            maximum=1,
        ),
        lines(
            "Bytes held",
            "Payload in the tiers of all nodes shown. G1 is what engines have registered. It should rise to the "
            "capacity and stay there.",
            Unit.BYTES,
            Query(
                sized("blockyard_blocks", "blockyard_block_bytes", "tier", EMPTY_ROWS),
                "{{tier}}",
            ),
            width=_THIRD,
        ),
        lines(
            "Time until a tier is replaced",
            "Capacity over the rate of evictions: about how long a block stays without being asked for. Good: longer "
            "than your users take to come back. Minutes only: the tier is small for what is in use. Nothing is shown "
            "where nothing had to go.",
            Unit.SECONDS,
            Query(
                share(
                    now("blockyard_capacity_blocks", f"{NODE}, tier", _LOCAL),
                    per_second("blockyard_evicted_blocks_total", f"{NODE}, tier", _LOCAL),
                ),
                f"{NODE_LEGEND} {{{{tier}}}}",
            ),
            width=_THIRD,
        ),
        lines(
            "G2 by state",
            "Rows of the table of host memory. Good: mostly inactive, which is kept and can go. Mostly held: what is "
            "pinned by loads and copies leaves no room, and stores are dropped. abandoned: a fault, see "
            "BlockyardLeakedBlocks.",
            Unit.COUNT,
            Query(now("blockyard_blocks", "state", 'tier="g2"'), "{{state}}"),
            width=_QUARTER,
            stacked=True,
        ),
        lines(
            "G3 by state",
            "Rows of the table of the disk. Good: mostly inactive. await_free that grows: headers are not written, "
            "see transfers and the log of the offload-worker.",
            Unit.COUNT,
            Query(now("blockyard_blocks", "state", 'tier="g3"'), "{{state}}"),
            width=_QUARTER,
            stacked=True,
        ),
        lines(
            "Evicted",
            "Blocks that had to go for others. Normal in a full tier; good while a tier is replaced slowly, see above.",
            Unit.BLOCKS_PER_SECOND,
            Query(per_second("blockyard_evicted_blocks_total", "tier"), "{{tier}}"),
            width=_QUARTER,
        ),
        lines(
            "Found damaged",
            "Blocks that did not match their checksum, by the tier they were read from. 0 is good. Each was a miss, "
            "and its copy is gone: see the runbook of BlockyardDamagedBlocks.",
            Unit.BLOCKS_PER_SECOND,
            Query(per_second("blockyard_checksum_failures_total", "tier"), "{{tier}}"),
            width=_QUARTER,
        ),
    ),
)

_TRANSFERS: Final = Row(
    "Transfers",
    (
        lines(
            "Bytes per edge",
            "Payload per second from tier to tier. Compare with what memory, disk and network can do; the benchmark "
            "of this machine (make bench) says how close the parts come.",
            Unit.BYTES_PER_SECOND,
            Query(per_second("blockyard_moved_bytes_total", "edge"), "{{edge}}"),
            width=_THIRD,
        ),
        lines(
            "Batches, p50",
            "Median duration of a batch of copies at its worker. Good: steady. It grows with the blocks per job.",
            Unit.SECONDS,
            Query(quantile(0.5, "blockyard_transfer_seconds", "edge"), "{{edge}}"),
            width=_THIRD,
        ),
        lines(
            "Batches, p99",
            "Slowest batches. Good: a few times the median. g3_g2 far above its median: the disk is busy, often with "
            "our own stores. g4_g2: see the requests to s3 below.",
            Unit.SECONDS,
            Query(quantile(0.99, "blockyard_transfer_seconds", "edge"), "{{edge}}"),
            width=_THIRD,
        ),
        table(
            "Movers between G2 and G3",
            "Good: nixl, by probed or setting. fallback: NIXL did not work there, and the plain mover takes more CPU "
            "per byte; the offload-worker's log says why in the line mover ready.",
            (
                Column("Namespace", "namespace"),
                Column("Node", "node"),
                Column("Mover", "mover"),
                Column("Chosen by", "reason"),
            ),
            Query(now("blockyard_mover_info", f"{NODE}, mover, reason", how="max")),
            width=_QUARTER,
            height=8,
        ),
        lines(
            "Given up",
            "Work dropped for want of room or time, by reason; 0 is good. *_full: a lower tier is slower than engines "
            "compute, and these blocks are kept nowhere below. Nothing is shown while there is none. cleared and "
            "late_doomed follow a clear of the operator.",
            Unit.PER_SECOND,
            Query(nonzero(per_second("blockyard_dropped_total", "reason")), "{{reason}}"),
            width=_QUARTER,
        ),
        lines(
            "Kept from the disk by a rule",
            "Blocks of G2 that a rule did not let into G3, by rule, each time it did. Good: what settings are meant "
            "to do. write_budget is g3.bytes_per_day, too_few_uses is g3.least_uses; the others would be of no use "
            "there. Nothing is shown while there is none.",
            Unit.BLOCKS_PER_SECOND,
            Query(nonzero(per_second("blockyard_not_written_blocks_total", "reason")), "{{reason}}"),
            width=_QUARTER,
        ),
        lines(
            "Items that did not move",
            "Blocks of jobs by kind and status other than ok. Good: few. source_changed: engines reuse memory before "
            "it is copied; a few are normal. io_error, no_space: see the disk or store. unknown: a worker or server "
            "did not answer. Nothing is shown while there is none.",
            Unit.BLOCKS_PER_SECOND,
            Query(
                nonzero(per_second("blockyard_job_items_total", "kind, status", 'status!="ok"')), "{{kind}} {{status}}"
            ),
            width=_QUARTER,
        ),
    ),
)

_RANKS: Final = Row(
    "Ranks that copy themselves",
    (
        lines(
            "Slots that ranks write or read",
            "Slots of G2 in the hands of engines with executor engine. open: granted ahead for stores, at most a "
            "quarter of G2. staged: pinned for loads until the engine has read them, at most half of it. Good: "
            "quarantined is 0. Those wait for a rank that went without a word to attach again or to die.",
            Unit.COUNT,
            Query(now("blockyard_rank_blocks", "state"), "{{state}}"),
            width=_THIRD,
            stacked=True,
        ),
        lines(
            "Processes that may write G2",
            "Ranks with executor engine. Good: all attached. detached or inherited for more than ten seconds: such a "
            "process stands still, and G2 is given up for it. While one is inherited, nothing is stored: the check "
            "arena-writers names its engine.",
            Unit.COUNT,
            Query(now("blockyard_arena_writers", "state"), "{{state}}"),
            width=_THIRD,
        ),
        lines(
            "Given up for what stood still",
            "Arenas: G2 started empty in another one, since a rank stood still or a new offload-worker could not take "
            "the old one over. Workers: the offload-worker left the last step of loads open, and was killed or is "
            "out of reach. 0 is good; loads come from below, or are computed, meanwhile.",
            Unit.PER_SECOND,
            Query(per_second("blockyard_arenas_given_up_total", NODE), f"{NODE_LEGEND} arenas"),
            Query(
                per_second("blockyard_stuck_workers_total", f"{NODE}, outcome"),
                f"{NODE_LEGEND} workers {{{{outcome}}}}",
            ),
            width=_THIRD,
        ),
    ),
)

_JOBS: Final = Row(
    "Jobs",
    (
        lines(
            "Ended",
            "Transfer jobs per second by kind. lost and never_ran should be rare: a worker ended, or a deadline came "
            "first.",
            Unit.PER_SECOND,
            Query(per_second("blockyard_jobs_total", "kind", 'end="result"'), "{{kind}}"),
            Query(nonzero(per_second("blockyard_jobs_total", "end", 'end!="result"')), "{{end}}"),
            width=_QUARTER,
        ),
        lines(
            "Waiting, and at their worker",
            "Jobs in the queues of the block-manager, and jobs that a worker has. Good: near 0 waiting. A queue of "
            "stores that stays full: see Given up. A queue of loads: the worker does not keep up with requests.",
            Unit.COUNT,
            Query(now("blockyard_jobs_waiting", "role, lane"), "{{role}} {{lane}} waiting"),
            Query(now("blockyard_jobs_unsettled", "role"), "{{role}} has"),
            width=_QUARTER,
        ),
        lines(
            "Until their worker has them, p99",
            "Longest waits of jobs in the block-manager. Good: milliseconds for g2_g1, g3_g2 and g4_get, which "
            "requests wait for. Stores may wait.",
            Unit.SECONDS,
            Query(quantile(0.99, "blockyard_job_wait_seconds", "kind"), "{{kind}}"),
            width=_QUARTER,
        ),
        lines(
            "From order to end, p99",
            "Waiting, sending, execution and result. Compare with batches per edge: what is above that is waiting.",
            Unit.SECONDS,
            Query(quantile(0.99, "blockyard_job_seconds", "kind"), "{{kind}}"),
            width=_QUARTER,
        ),
    ),
)

_SERVERS: Final = Row(
    "Servers and workers a node stands on",
    (
        Panel(
            kind=Kind.STAT,
            title="Answering",
            description="Each server and worker as the nodes shown see it. Good: all up. down: it does not answer at "
            "least one node. Without the offload-worker a node serves nothing; without the others its local tiers go "
            "on. See the runbook of BlockyardDependencyDown.",
            unit=Unit.COUNT,
            queries=(Query(now("blockyard_dependency_up", "name", how="min"), "{{name}}"),),
            width=_THIRD,
            steps=(Step(Color.BAD), Step(Color.GOOD, 1)),
            texts=UP_OR_DOWN,
        ),
        lines(
            "Requests to s3, p99",
            "Slowest requests by operation. Good: far below g4.request_timeout_seconds and the deadline of loads. "
            "High: the store or the network to it is busy.",
            Unit.SECONDS,
            Query(quantile(0.99, "blockyard_dependency_seconds", "operation", 'name="s3"'), "{{operation}}"),
            width=_THIRD,
        ),
        lines(
            "Requests to redis, p99",
            "Slowest requests by operation; find is in the way of lookups. Good: a few milliseconds. High: the server "
            "is busy, or far away.",
            Unit.SECONDS,
            Query(quantile(0.99, "blockyard_dependency_seconds", "operation", 'name="redis"'), "{{operation}}"),
            width=_THIRD,
        ),
        lines(
            "Requests",
            "Calls per second to each server, events by windows. It follows the load; none while there is load: it is "
            "believed dead and asked again every few seconds.",
            Unit.PER_SECOND,
            Query(per_second("blockyard_dependency_seconds_count", "name, operation"), "{{name}} {{operation}}"),
            width=_QUARTER,
        ),
        lines(
            "Failed requests",
            "Calls that ended without a useful answer, by reason; 0 is good. deadline-exceeded and given-up: slow. "
            "unavailable: away. access-denied: credentials or rights. Nothing is shown while there is none.",
            Unit.PER_SECOND,
            Query(nonzero(per_second("blockyard_dependency_errors_total", "name, reason")), "{{name}} {{reason}}"),
            width=_QUARTER,
        ),
        lines(
            "Shared index knew",
            "Share of the blocks asked of the index that it had. Low is normal where nodes share little. It falls for "
            "a while when the index was lost and is being rebuilt.",
            Unit.SHARE,
            Query(
                share(
                    per_second("blockyard_index_lookup_blocks_total", NODE, 'outcome="hit"'),
                    per_second("blockyard_index_lookup_blocks_total", NODE),
                ),
                NODE_LEGEND,
            ),
            width=_QUARTER,
            maximum=1,
        ),
        lines(
            "Index writes that wait",
            "Writes that redis did not take yet; 0 is good. Meanwhile other nodes do not find these blocks. When it "
            "stays: see redis, and the runbook of BlockyardIndexWritesLost.",
            Unit.COUNT,
            Query(now("blockyard_index_writes_waiting", NODE), NODE_LEGEND),
            width=_QUARTER,
        ),
    ),
)

_PROCESSES: Final = Row(
    "Processes",
    (
        lines(
            "Lag of the event loops, p99",
            "How late a service comes to its timers: every request to it waits as long. Good: below 10 ms. Above 100 "
            "ms: the process has too little CPU.",
            Unit.SECONDS,
            Query(
                "histogram_quantile(0.99, "
                + of_processes("blockyard_event_loop_lag_seconds_bucket", f"le, {NODE}, service", rate=True)
                + ")",
                f"{NODE_LEGEND} {{{{service}}}}",
            ),
            width=_THIRD,
        ),
        lines(
            "CPU",
            "Cores that each service uses. Good: below its limit. At its limit: give it more, or expect lag.",
            Unit.CORES,
            Query(
                of_processes("process_cpu_seconds_total", f"{NODE}, service", rate=True),
                f"{NODE_LEGEND} {{{{service}}}}",
            ),
            width=_THIRD,
        ),
        lines(
            "Memory",
            "Resident memory of each service; that of an offload-worker and a remote-tier includes the pages of G2 it "
            "has touched. Good: levels off below the limit of its container.",
            Unit.BYTES,
            Query(of_processes("process_resident_memory_bytes", f"{NODE}, service"), f"{NODE_LEGEND} {{{{service}}}}"),
            width=_THIRD,
        ),
    ),
)

TIERS: Final = Board(
    name="tiers",
    title="Blockyard / Tiers",
    description="What the tiers hold, what moves between them, and what they stand on.",
    rows=(_HELD, _TRANSFERS, _RANKS, _JOBS, _SERVERS, _PROCESSES),
)
