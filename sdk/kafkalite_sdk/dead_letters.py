"""Sends poison values to a topic, with their cause and origin in headers."""

from typing import Any

from kafkalite_sdk._speedups.consumer_records import Record
from kafkalite_sdk.producer.producer import Producer

ERROR_BYTES_MAX = 4096
"""Longest text of an error in a header."""


class DeadLetterTopic:
    """A function for `Consumer(on_poison=...)`: sends the bytes of the record, and waits for the acknowledgement.

    The headers of the record are kept. These are added, as text: `dead-letter.topic`, `dead-letter.partition`,
    `dead-letter.offset`, `dead-letter.timestamp` (in ms), `dead-letter.error` (name of the class) and
    `dead-letter.reason`.

    Arguments:
        producer: started, without serializers.
        topic: where to.
    """

    def __init__(self, producer: Producer[Any, Any], topic: str) -> None:
        self._producer = producer
        self._topic = topic

    async def __call__(self, record: Record[Any, Any], error: Exception) -> None:
        """Send a record. Raises what the producer raises; then the consumer does not skip the record."""
        added = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "error": f"{type(error).__module__}.{type(error).__qualname__}",
            "reason": str(error),
        }
        headers: list[tuple[str | bytes, bytes | None]] = [*record.headers]
        headers += [(f"dead-letter.{name}", str(text).encode()[:ERROR_BYTES_MAX]) for name, text in added.items()]
        await self._producer.send(self._topic, record.raw_value, record.raw_key, headers=headers)
