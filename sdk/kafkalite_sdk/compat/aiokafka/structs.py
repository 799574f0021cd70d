"""aiokafka's records, offsets and metadata."""

from typing import NamedTuple

from kafkalite.errors import KafkaError
from kafkalite.model import TopicPartition
from kafkalite_sdk._speedups.aiokafka_records import ConsumerRecord
from kafkalite_sdk._speedups.deliveries import RecordMetadata

__all__ = [
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]


class OffsetAndMetadata(NamedTuple):
    """An offset to commit.

    Attributes:
        offset: of the next record to read.
        metadata: a text that the group keeps with it.
    """

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """The first record of a time or later.

    Attributes:
        offset: of the record.
        timestamp: in ms since 1970; None = the broker does not report it.
    """

    offset: int
    timestamp: int | None


class BrokerMetadata(NamedTuple):
    """A broker.

    Attributes:
        nodeId: broker id.
        host, port: its address.
        rack: None = unknown.
    """

    nodeId: int | str
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """A partition.

    Attributes:
        topic, partition: its name and number.
        leader: broker id.
        replicas, isr: broker ids.
        error: of the partition, None = none.
    """

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: KafkaError | None
