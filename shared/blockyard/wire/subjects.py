"""Names on NATS: stream, subjects and buckets; the only place where they are spelled.

A node may be called like a machine, ``node-7.example.internal``, while a dot ends a part of a subject and of a key. So
dots are written as underscores there, which names cannot hold: two nodes never share a subject or a key. Consumers need
not turn that back, because every event and every record holds the name itself.
Threading: pure functions.
"""

from typing import Final

EVENT_STREAM: Final = "KV_EVENTS"
EVENT_SUBJECTS: Final = "kv.events.>"
INSTANCE_BUCKET: Final = "instances"


def events_of(namespace: str, node: str) -> str:
    """Subject on which a node publishes its KV events."""
    return f"kv.events.{namespace}.{_token(node)}"


def instance_key(namespace: str, node: str) -> str:
    """Key of a node in the bucket of instances."""
    return f"{namespace}.{_token(node)}"


def _token(name: str) -> str:
    return name.replace(".", "_")
