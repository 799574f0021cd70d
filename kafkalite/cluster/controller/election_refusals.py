"""Says why no leader is elected on request (ElectLeaders, KIP-183 and KIP-460).

In a cluster, `state/controller/preferred_election` elects preferred leaders, `state/controller/partitions/requests`
decides requests, and `state/controller/partitions/leader_elections` chooses other leaders. A broker that is alone has
one replica of each partition: a request finds the leader elected, or a partition whose replica is not available.

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


def reason_of(error: int, partition: PartitionImage | None) -> str | None:
    """Return the message for an error of the controller; None = no error, or one that explains itself.

    Arguments:
        error: of the partition.
        partition: its state; None = it is not in the image.
    """
    if error == UNKNOWN.error:
        return UNKNOWN.message
    if error == NOT_NEEDED.error:
        return NOT_NEEDED.message
    if partition is None:
        return None
    if error == KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
        return _not_eligible(partition).message
    if error == KafkaErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
        return f"The preferred leader, on broker {partition.replicas[0]}, is not available or not in sync."
    return None


def _not_eligible(partition: PartitionImage) -> Refusal:
    text = f"No replica is available, of the brokers {', '.join(map(str, partition.replicas))}."
    return Refusal(KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)


def _not_available(preferred: int) -> Refusal:
    text = f"The preferred leader, on broker {preferred}, is not available."
    return Refusal(KafkaErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, text)
