"""Names on NATS: stream, subjects and buckets; the only place where they are spelled."""

from typing import Final

EVENT_STREAM: Final = "KV_EVENTS"
EVENT_SUBJECTS: Final = "kv.events.>"
INSTANCE_BUCKET: Final = "instances"


def events_of(namespace: str, node: str) -> str:
    """Subject on which a node publishes its KV events."""
    return f"kv.events.{namespace}.{node}"


def instance_key(namespace: str, node: str) -> str:
    """Key of a node in the bucket of instances."""
    return f"{namespace}.{node}"
