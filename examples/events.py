"""Print KV events of all nodes. Usage: events.py <address of NATS> <how many>"""

import asyncio
import sys

import nats

from blockyard.core.events import ClearedEvent, OffloadedEvent, RemovedEvent, StoredEvent
from blockyard.wire.event_codec import decode_event


async def main(address: str, count: int) -> None:
    client = await nats.connect(address)
    events = await client.jetstream().subscribe("kv.events.>", ordered_consumer=True)
    last: dict[tuple[str, int], int] = {}
    for _ in range(count):
        message = await events.next_msg(timeout=10)
        published = decode_event(message.data)
        life = (published.instance, published.epoch)
        hole = published.seq - last.get(life, 0) - 1
        last[life] = published.seq
        match published.event:
            case StoredEvent(owner=owner, tier=tier, blocks=blocks):
                what = f"stored    {tier.name}        by {owner.kind} {owner.name}: {len(blocks)} blocks"
            case OffloadedEvent(owner=owner, from_tier=origin, to_tier=tier, blocks=blocks):
                what = f"offloaded {origin.name} to {tier.name}  by {owner.kind} {owner.name}: {len(blocks)} blocks"
            case RemovedEvent(owner=owner, tier=tier, keys=keys):
                what = f"removed   {tier.name}        by {owner.kind} {owner.name}: {len(keys)} blocks"
            case ClearedEvent(owner=owner, tier=tier):
                what = f"cleared   {tier.name if tier else 'all'}        by {owner.name if owner else 'all'}"
        print(f"{message.subject} seq {published.seq:<3} {f'after a hole of {hole} ' if hole else ''}{what}")
    await client.close()


if len(sys.argv) != 3 or not sys.argv[2].isdecimal():
    sys.exit(__doc__)
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
