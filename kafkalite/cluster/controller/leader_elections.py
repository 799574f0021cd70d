"""Decides requested elections of leaders (ElectLeaders, KIP-183 and KIP-460).

The controller elects whenever a replica fails or returns, and every partition has one replica. So a request finds the
leader elected, or a partition whose replica is not available: there is no other replica to elect, and none that is out
of sync. This must change with replication.

Source: KafkaController.processReplicaLeaderElection of Apache Kafka 3.9.
"""

import enum
from collections.abc import Container

from kafkalite.cluster.changes import Refusal
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.errors import KafkaErrorCode


class ElectionType(enum.IntEnum):
    """The type of an election, with the number in requests."""

    PREFERRED = 0
    UNCLEAN = 1


UNKNOWN = Refusal(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
NOT_NEEDED = Refusal(KafkaErrorCode.ELECTION_NOT_NEEDED, "The leader is elected already.")


def election_refusal(partition: PartitionImage | None, offline: Container[int], election_type: ElectionType) -> Refusal:
    """Return why no leader is elected.

    Arguments:
        partition: its state; None = it does not exist.
        offline: the replicas that are not available.
        election_type: of the request.
    """
    if partition is None:
        return UNKNOWN
    led = partition.leader in partition.replicas and partition.leader not in offline
    if election_type is ElectionType.UNCLEAN:
        return NOT_NEEDED if led else _not_eligible(partition)
    preferred = partition.replicas[0]
    return NOT_NEEDED if led and partition.leader == preferred else _not_available(preferred)


def _not_eligible(partition: PartitionImage) -> Refusal:
    text = f"No replica is available, of the brokers {', '.join(map(str, partition.replicas))}."
    return Refusal(KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)


def _not_available(preferred: int) -> Refusal:
    text = f"The preferred leader, on broker {preferred}, is not available."
    return Refusal(KafkaErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
