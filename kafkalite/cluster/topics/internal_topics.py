"""Declares the internal topics, with their settings; clients may read them, but not write to them.

An internal topic is created at its first use by the coordinator, or when a client requests its metadata, with the
settings that the coordinator needs.

Sources: AutoTopicCreationManager.scala, ReplicaManager.appendRecords, TransactionStateManager.scala.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkalite.cluster.partition.append import Append
from kafkalite.cluster.partition.partition import Partition
from kafkalite.config.broker import BrokerConfig
from kafkalite.errors import KafkaErrorCode

LOGGER = logging.getLogger("kafkalite.cluster")


class InternalTopic(NamedTuple):
    """An internal topic and its settings.

    Arguments:
        name: of the topic.
        replicas_key: the configuration key of `replicas`.
        partitions, replicas, configs: computed from the broker configuration.
        load_bytes: how many bytes are read at once while a partition is loaded.
    """

    name: str
    replicas_key: str
    partitions: Callable[[BrokerConfig], int]
    replicas: Callable[[BrokerConfig], int]
    configs: Callable[[BrokerConfig], Mapping[str, str]]
    load_bytes: Callable[[BrokerConfig], int]

    def warn_of_one_replica(self, config: BrokerConfig) -> None:
        """Log after the creation that the topic has fewer replicas than configured; not for the default factor."""
        wanted = self.replicas(config)
        if self.replicas_key in config.static and wanted > 1:
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
    load_bytes=lambda config: config.offsets_load_buffer_size,
)
TRANSACTION_STATE = InternalTopic(
    "__transaction_state",
    replicas_key="transaction.state.log.replication.factor",
    partitions=lambda config: config.transaction_state_log_num_partitions,
    replicas=lambda config: config.transaction_state_log_replication_factor,
    configs=lambda config: {  # transactionStateTopicConfigs of TransactionStateManager.scala
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    },
    load_bytes=lambda config: config.transaction_state_log_load_buffer_size,
)
INTERNAL_TOPICS = {topic.name: topic for topic in (OFFSETS, TRANSACTION_STATE)}


class InternalPartition(Partition):
    """A partition of an internal topic: only its coordinator appends to it."""

    __slots__ = ()

    def append(self, append: Append) -> None:
        """Reject an append of a client with INVALID_TOPIC_EXCEPTION."""
        append.reject(KafkaErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {self.topic}")

    def delete_records_before(self, offset: int) -> int:
        """Reject it with INVALID_TOPIC_EXCEPTION."""
        return KafkaErrorCode.INVALID_TOPIC_EXCEPTION
