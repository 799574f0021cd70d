"""Counts the replicas of the partitions that a broker leads, with the meanings of Kafka's metrics.

| gauge | Kafka |
|---|---|
| `kafkalite_under_replicated_partitions` | UnderReplicatedPartitions: a replica is not in sync |
| `kafkalite_under_min_isr_partitions` | UnderMinIsrPartitionCount: fewer in-sync replicas than the effective minimum |
| `kafkalite_at_min_isr_partitions` | AtMinIsrPartitionCount: just the minimum, also those with one replica |
| `kafkalite_offline_replicas` | OfflineReplicaCount: replicas in log directories that have failed |
| `kafkalite_replication_bytes_out` | ReplicationBytesOutPerSec counts them: records that were sent to followers |
| `kafkalite_replication_throttled_bytes_out` | LeaderReplication, byte-rate: those of throttled replicas |

The effective minimum is min(min.insync.replicas, replicas). Source: Partition.scala of Apache Kafka 3.9.
"""

from collections.abc import Callable, Iterator
from functools import partial

from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.replicas import Replicas
from kafkalite.errors import KafkaErrorCode
from kafkalite.metrics import Registry
from kafkalite.state.fetch_sessions import FetchSessions
from kafkalite.state.replica_sessions import ReplicaSessions


def register_replica_metrics(registry: Registry, replicas: Replicas, sessions: FetchSessions) -> None:
    """Register the gauges; the partitions are counted when they are read.

    Arguments:
        registry: of the broker.
        replicas: the hosted partitions.
        sessions: of this broker, with those of its followers.
    """
    registry.gauge(
        "kafkalite_under_replicated_partitions",
        "Partitions led by this broker with fewer in-sync replicas than replicas.",
        partial(count_led, replicas, is_under_replicated),
    )
    registry.gauge(
        "kafkalite_under_min_isr_partitions",
        "Partitions led by this broker with fewer in-sync replicas than min.insync.replicas.",
        partial(count_led, replicas, is_under_minimum),
    )
    registry.gauge(
        "kafkalite_at_min_isr_partitions",
        "Partitions led by this broker with min.insync.replicas in-sync replicas.",
        partial(count_led, replicas, is_at_minimum),
    )
    registry.gauge(
        "kafkalite_offline_replicas",
        "Replicas of this broker whose log directory has failed.",
        partial(count_offline, replicas),
    )
    registry.gauge(
        "kafkalite_replication_bytes_out",
        "Bytes of records that were sent to followers.",
        lambda: sessions.of_replicas.bytes_out if isinstance(sessions.of_replicas, ReplicaSessions) else 0,
    )
    registry.gauge(
        "kafkalite_replication_throttled_bytes_out",
        "Bytes that were sent to throttled replicas; see leader.replication.throttled.rate.",
        lambda: sessions.of_replicas.quota.bytes if isinstance(sessions.of_replicas, ReplicaSessions) else 0,
    )


def count_offline(replicas: Replicas) -> int:
    """Count the replicas of this broker whose log directory has failed."""
    offline = KafkaErrorCode.KAFKA_STORAGE_ERROR
    return sum(each.error == offline for hosted in replicas for each in hosted.partitions.values())


def count_led(replicas: Replicas, counts: Callable[[Partition, Leader], bool]) -> int:
    """Count the partitions led by this broker for which `counts` is true."""
    return sum(counts(partition, leader) for partition, leader in leaderships(replicas))


def leaderships(replicas: Replicas) -> Iterator[tuple[Partition, Leader]]:
    """The partitions that this broker leads, with their roles."""
    for hosted in replicas:
        for partition in hosted.partitions.values():
            if isinstance(partition.role, Leader):
                yield partition, partition.role


def is_under_replicated(partition: Partition, leader: Leader) -> bool:
    """Whether a replica is not in sync."""
    return len(partition.isr) <= len(leader.followers)


def is_under_minimum(partition: Partition, _leader: Leader) -> bool:
    """Whether fewer replicas are in sync than writes with acks=all need."""
    return len(partition.isr) < partition.replicas_min


def is_at_minimum(partition: Partition, _leader: Leader) -> bool:
    """Whether writes with acks=all fail with one in-sync replica less."""
    return len(partition.isr) == partition.replicas_min
