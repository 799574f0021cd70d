"""Values that a user gives to the clients or gets from them, and that interceptors see: offsets and records to send."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # a part of mypy; kafkalite does not depend on it

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")


SHOWN_BYTES_MAX = 64


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    Attributes:
        offset: of the next record to read.
        metadata: text of the application.
        leader_epoch: of the record before the offset, -1 = unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class DetachedTransaction(NamedTuple):
    """An open transaction that its producer has left: `admin.transactions.end` ends it, also from another process.

    Attributes:
        transactional_id, producer_id, producer_epoch: of the producer.
        version: of the transaction protocol that the producer has used, 1 or 2 (KIP-890).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int


class ListedOffset(NamedTuple):
    """An offset that ListOffsets has found.

    Attributes:
        offset: -1 = no record is that late.
        timestamp_ms: of the record, -1 = it was not searched by time.
        leader_epoch: of the record, -1 = unknown.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int


class OffsetAndTimestamp(NamedTuple):
    """The first record of a time or later.

    Attributes:
        offset: of the record.
        timestamp_ms: of the record, in ms since 1970.
        leader_epoch: of the record, -1 = unknown.
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class ProducerRecord(NamedTuple, Generic[K, V]):
    """A record for `Producer.send_many`; the fields are the arguments of `Producer.send`."""

    topic: str
    value: V | None = None
    key: K | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str | bytes, bytes | None]] | None = None

    def __repr__(self) -> str:
        return (
            f"ProducerRecord(topic={self.topic!r}, value={format_data(self.value)}, key={format_data(self.key)}, "
            f"partition={self.partition}, timestamp_ms={self.timestamp_ms})"
        )


def format_data(data: object) -> str:
    """Return the text of a key or value for `repr` of records: bytes by their size if they are longer than 64 bytes."""
    return f"<{len(data)} bytes>" if isinstance(data, bytes) and len(data) > SHOWN_BYTES_MAX else repr(data)
