"""The third dashboard: do routers and schedulers hear what changes?

Threading: values only.
"""

from typing import Final

from deploy.dashboards.panels import (
    NONE_IS_GOOD,
    UP_OR_DOWN,
    Board,
    Color,
    Column,
    Query,
    Row,
    Step,
    Unit,
    lines,
    stat,
    table,
)
from deploy.dashboards.queries import NODE, NODE_LEGEND, counted, now, of_processes, per_second, quantile

_APPENDED: Final = "blockyard_events_appended_total"
_PUBLISHED: Final = "blockyard_events_published_total"
_LOST: Final = "blockyard_events_overwritten_total"
_FAILED: Final = "blockyard_publish_failures_total"
_WAITING: Final = "blockyard_events_waiting"

_NUMBERS: Final = Row(
    "Do routers hear what changes",
    (
        stat(
            "Appended",
            "Events per second that nodes gave a number: what entered and left their tiers. It follows the load.",
            Unit.PER_SECOND,
            Query(per_second(_APPENDED), "events"),
        ),
        stat(
            "Published",
            "Events per second that NATS has acknowledged. Good: the same as appended.",
            Unit.PER_SECOND,
            Query(per_second(_PUBLISHED), "events"),
        ),
        stat(
            "Waiting",
            "Events in the outboxes. Good: near 0. Growing: NATS is away or slow, see the runbook of "
            "BlockyardEventsStuck.",
            Unit.COUNT,
            Query(now(_WAITING), "events"),
            steps=(Step(Color.GOOD), Step(Color.WARNING, 1_000)),
        ),
        stat(
            "Lost",
            "Events in the time shown that left a full outbox before they were published. 0 is good. Consumers see "
            "the hole: what they know of the node is incomplete; see the runbook of BlockyardEventsLost.",
            Unit.COUNT,
            Query(counted(_LOST), "events"),
            steps=NONE_IS_GOOD,
        ),
        stat(
            "Failed publications",
            "Windows of events in the time shown that NATS did not acknowledge. They are sent again from the first "
            "that is missing. 0 is good; see the runbook of BlockyardPublishFailures.",
            Unit.COUNT,
            Query(counted(_FAILED), "windows"),
            steps=NONE_IS_GOOD,
        ),
        stat(
            "Names held",
            "Nodes whose record in NATS is theirs, and all whose block-manager answers. Equal is good. Fewer: NATS is "
            "away, or another node has the name, see the table.",
            Unit.COUNT,
            Query(now("blockyard_lease_state", labels='state="held"'), "held"),
            Query(f"count({now('blockyard_lease_state', NODE, how='max')})", "all"),
        ),
    ),
)

_FLOW: Final = Row(
    "Flow",
    (
        lines(
            "Appended per node",
            "Events per second that each node gave a number. Good: about what it stores and evicts. Much more than "
            "the blocks it stores: blocks enter and leave without being used, see Time until a tier is replaced.",
            Unit.PER_SECOND,
            Query(per_second(_APPENDED, NODE), NODE_LEGEND),
        ),
        lines(
            "Published per node",
            "Events per second that NATS acknowledged. Good: the same as appended; a peak after a gap is the backlog "
            "going out.",
            Unit.PER_SECOND,
            Query(per_second(_PUBLISHED, NODE), NODE_LEGEND),
        ),
        lines(
            "Waiting per node",
            "Events in the outbox of each node. Good: near 0. The outbox has 64 MiB; what it drops is lost.",
            Unit.COUNT,
            Query(now(_WAITING, NODE), NODE_LEGEND),
        ),
        lines(
            "Duration of a publication",
            "From sending a window of events to its last acknowledgement. Good: milliseconds. Seconds: the server or "
            "its disk is slow, and what routers know is as old.",
            Unit.SECONDS,
            *(
                Query(
                    quantile(level, "blockyard_dependency_seconds", labels='name="nats", operation="publish"'),
                    f"p{level * 100:.0f}",
                )
                for level in (0.5, 0.9, 0.99)
            ),
        ),
        lines(
            "Lost and failed",
            "Events lost and windows not acknowledged, per node. 0 is good.",
            Unit.PER_SECOND,
            Query(per_second(_LOST, NODE), f"{NODE_LEGEND} lost"),
            Query(per_second(_FAILED, NODE), f"{NODE_LEGEND} failed"),
        ),
        lines(
            "Connected to NATS",
            "1 while a node has its connection. Good: always 1. A node without it serves its local tiers as before.",
            Unit.COUNT,
            Query(now("blockyard_dependency_up", NODE, 'name="nats"', how="min"), NODE_LEGEND),
            maximum=1,
        ),
    ),
)

_NODES: Final = Row(
    "Node by node",
    (
        table(
            "Nodes",
            "One line per node; events are counted since its last start. Good: held, up, nothing waiting or lost. "
            "taken: another state folder has a live record under this name. away: NATS is. fenced: a later life of "
            "this node has begun.",
            (
                Column("Namespace", "namespace"),
                Column("Node", "node"),
                Column("Name", "state"),
                Column("NATS", 1, texts=UP_OR_DOWN),
                Column("Appended", 2),
                Column("Published", 3),
                Column("Waiting", 4),
                Column("Lost", 5),
                Column("Last start", 6, Unit.AGO),
            ),
            Query(f"{now('blockyard_lease_state', f'{NODE}, state', how='max')} == 1"),
            Query(now("blockyard_dependency_up", NODE, 'name="nats"', how="min")),
            Query(now(_APPENDED, NODE)),
            Query(now(_PUBLISHED, NODE)),
            Query(now(_WAITING, NODE)),
            Query(now(_LOST, NODE)),
            Query(f"1000 * {of_processes('process_start_time_seconds', NODE, how='max')}"),
        ),
    ),
)

EVENTS: Final = Board(
    name="events",
    title="Blockyard / Events",
    description="Do routers and schedulers hear what changes?",
    rows=(_NUMBERS, _FLOW, _NODES),
)
