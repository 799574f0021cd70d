"""The replica from which a consumer in a rack reads (KIP-392); `server/requests/rack_aware_fetch` has the candidates.

Sources: RackAwareReplicaSelector.java, ReplicaView.java, ReplicaManager.findPreferredReadReplica of Apache Kafka 3.9.
"""

from collections.abc import Iterable
from typing import NamedTuple

LEADER = -1


class ReadCandidate(NamedTuple):
    """A follower that consumers can read from: it is in the ISR and has the wanted offset.

    Arguments:
        broker_id: of the follower.
        rack: of its broker; None = no rack.
        end_offset: of its log.
        caught_up_ms: the last time at which it had all records of the leader.
    """

    broker_id: int
    rack: str | None
    end_offset: int
    caught_up_ms: int


def choose_in_rack(rack: str, leader_rack: str | None, followers: Iterable[ReadCandidate]) -> int:
    """Return the follower in the rack of a consumer that has most records, was caught up last, and has the largest id.

    Arguments:
        rack: of the consumer.
        leader_rack: of the leader, which is preferred in its own rack.
        followers: that the consumer can read from.

    Returns a broker id, LEADER if no follower is preferred.
    """
    if rack == leader_rack:
        return LEADER
    found = [(each.end_offset, each.caught_up_ms, each.broker_id) for each in followers if each.rack == rack]
    return max(found)[2] if found else LEADER
