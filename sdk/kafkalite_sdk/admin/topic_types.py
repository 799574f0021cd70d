"""The arguments and results of the administration of topics.

Pure.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

DEFAULT = -1
"""In the place of a count: the broker's default."""


class NewTopic(NamedTuple):
    """A topic to create.

    Attributes:
        name: of the topic.
        partitions: their number; DEFAULT = `num.partitions` of the broker.
        replication_factor: replicas of each partition; DEFAULT = `default.replication.factor`.
        replicas: the broker ids of each partition's replicas, instead of both counts; None = the broker chooses.
        configs: of the topic, by name.
    """

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    replicas: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str | None] = MappingProxyType({})


class CreatedTopic(NamedTuple):
    """A created topic; -1 = the broker does not report it.

    Attributes:
        name, topic_id: of the topic; the id as Kafka prints it.
        partitions, replication_factor: its size.
        configs: its effective configs, None = not reported.
    """

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str | None] | None


class PartitionDescription(NamedTuple):
    """A partition.

    Attributes:
        partition: its number.
        leader: broker id, None = it has none.
        leader_epoch: -1 = unknown.
        replicas, isr, offline_replicas: broker ids.
    """

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic.

    Attributes:
        name, topic_id: of the topic; the id as Kafka prints it.
        internal: an internal topic such as `__consumer_offsets`.
        partitions: in the order of their numbers.
        authorized_operations: operations that this client may use, None = not requested.
    """

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[int] | None = None

    @property
    def replication_factor(self) -> int:
        """The largest number of replicas of a partition."""
        return max((len(each.replicas) for each in self.partitions), default=0)


class Reassignment(NamedTuple):
    """A partition that is being reassigned.

    Attributes:
        replicas: broker ids of all replicas, the added ones included.
        adding, removing: broker ids.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ProducerState(NamedTuple):
    """An active producer of a partition.

    Attributes:
        producer_id, producer_epoch: of the producer.
        last_sequence: of its last record, -1 = none.
        last_timestamp_ms: of its last batch, -1 = none.
        coordinator_epoch: of the coordinator of its transaction, -1 = none.
        transaction_start_offset: of its open transaction, None = it has none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None
