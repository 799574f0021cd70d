"""The internal topics: which there are, how they are made, and that clients may read but not write them.

They are made on first use by their coordinator, or when a client asks for their metadata; either way with the settings
that the coordinator needs. Source: AutoTopicCreationManager.scala, ReplicaManager.appendRecords of Apache Kafka.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafkalite.cluster.append import Append
from kafkalite.cluster.partition import Partition
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode

__all__ = ["INTERNAL_TOPICS", "OFFSETS", "InternalPartition", "InternalTopic"]

LOGGER = logging.getLogger("kafkalite.cluster")


@dataclass(frozen=True)
class InternalTopic:
    """An internal topic and how it is to be made.

    Arguments:
        replicas_key: the setting behind `replicas`.
        partitions, replicas, configs: of a broker's settings.
    """

    name: str
    replicas_key: str
    partitions: Callable[[BrokerConfig], int]
    replicas: Callable[[BrokerConfig], int]
    configs: Callable[[BrokerConfig], Mapping[str, str]]

    def replication_factor(self, config: BrokerConfig, brokers: int) -> int:
        """As configured; one where there is one broker."""
        wanted = self.replicas(config)
        if brokers != 1 or wanted == 1:
            return wanted
        return 1

    def warn_of_one_replica(self, config: BrokerConfig, brokers: int) -> None:
        """Say once the topic is there that it has fewer replicas than configured; the default asks for nothing."""
        wanted = self.replicas(config)
        if self.replicas_key in config.static and self.replication_factor(config, brokers) < wanted:
            LOGGER.warning("%s: created with one replica instead of %d: there is one broker", self.name, wanted)


OFFSETS = InternalTopic(
    "__consumer_offsets",
    replicas_key="offsets.topic.replication.factor",
    partitions=lambda config: config.offsets_topic_num_partitions,
    replicas=lambda config: config.offsets_topic_replication_factor,
    configs=lambda config: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    },
)
INTERNAL_TOPICS = {topic.name: topic for topic in (OFFSETS,)}


class InternalPartition(Partition):
    """A partition that only its coordinator appends to."""

    __slots__ = ()

    def append(self, append: Append) -> None:
        """Refuse what a client sent: INVALID_TOPIC_EXCEPTION."""
        append.reject(KafkaErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {self.topic}")

    def delete_records_before(self, offset: int) -> int:
        """Refuse it: INVALID_TOPIC_EXCEPTION."""
        return KafkaErrorCode.INVALID_TOPIC_EXCEPTION
