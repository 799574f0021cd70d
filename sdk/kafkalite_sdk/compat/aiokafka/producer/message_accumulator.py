"""aiokafka's batches that the application fills."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kafkalite_sdk._speedups.arguments import nullable_bytes

RECORD_OVERHEAD = 21  # largest size of the lengths and deltas of a record
BATCH_OVERHEAD = 61


class AppendedRecord(NamedTuple):
    """A record of a batch.

    Attributes:
        offset: its index in the batch.
        crc: always None.
        size: in bytes, an upper bound.
        timestamp: in ms since 1970.
    """

    offset: int
    crc: None
    size: int
    timestamp: int


class BatchRecord(NamedTuple):
    """What the producer sends of a record: bytes, and a timestamp in ms."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class BatchBuilder:
    """Records for `AIOKafkaProducer.send_batch`.

    Arguments:
        size_max: largest size of the batch in bytes; the first record always fits.
        key_serializer, value_serializer: of the producer.
    """

    def __init__(
        self,
        size_max: int,
        key_serializer: Callable[[Any], bytes | None] | None,
        value_serializer: Callable[[Any], bytes | None] | None,
    ) -> None:
        self.records: list[BatchRecord] = []
        self._size_max = size_max
        self._size = BATCH_OVERHEAD
        self._closed = False
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer

    def append(
        self, *, timestamp: int | None, key: Any, value: Any, headers: Sequence[tuple[str, bytes]] | None = None
    ) -> AppendedRecord | None:
        """Add a record.

        Arguments:
            timestamp: in ms since 1970, None = now.
            key, value: what the serializers accept; bytes without serializers.
            headers: name and value of each.

        Returns: None when the batch is full or closed.
        """
        key = key if self._key_serializer is None else self._key_serializer(key)
        value = value if self._value_serializer is None else self._value_serializer(value)
        key, value = nullable_bytes(key), nullable_bytes(value)
        kept = [(name, nullable_bytes(content)) for name, content in headers or ()]
        size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(10 + len(name.encode()) + len(content or b"") for name, content in kept)
        if self._closed or (self.records and self._size + size > self._size_max):
            self._closed = True
            return None
        timestamp = int(time.time() * 1000) if timestamp is None else timestamp
        self._size += size
        self.records.append(BatchRecord(timestamp, key, value, kept))
        return AppendedRecord(len(self.records) - 1, None, size, timestamp)

    def close(self) -> None:
        """Accept no more records."""
        self._closed = True

    def closed(self) -> bool:
        """Return whether the batch accepts no more records."""
        return self._closed

    def size(self) -> int:
        """Return the size in bytes, an upper bound."""
        return self._size

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self.records)
