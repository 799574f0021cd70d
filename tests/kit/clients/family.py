"""What kafka-python and its descendant aiokafka have in common: names of settings, the shape of a consumed message."""

from __future__ import annotations

from typing import Any

from tests.kit.clients.model import Record

# A consumer without a group, which fails where Kafka would choose an offset for it.
READING: dict[str, Any] = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "max_partition_fetch_bytes": 4 << 20,
}


def record_of(message: Any) -> Record:
    """A consumed message (either library's ConsumerRecord) as a type of its own."""
    return Record(
        value=message.value,
        key=message.key,
        headers=tuple(message.headers),
        timestamp_ms=message.timestamp,
        partition=message.partition,
        offset=message.offset,
    )


def writing(address: str, codec: str, acks: str, idempotent: bool, request_bytes_max: int | None) -> dict[str, Any]:
    """The settings of a producer, from the arguments of `Client.write`."""
    settings = {
        "bootstrap_servers": address,
        "compression_type": None if codec == "none" else codec,
        "acks": acks if acks == "all" else int(acks),
        "enable_idempotence": idempotent,
        "linger_ms": 5,
    }
    if request_bytes_max is not None:
        settings["max_request_size"] = request_bytes_max
    return settings
