"""Which brokers hold the replicas of a new partition (AdminUtils.assignReplicasToBrokers without racks, KIP-36 later).

Leaders go round robin over the brokers from a random start; the followers of a partition have a distance that grows
by one each time all brokers have led once, so that a lost broker's load spreads over all others.
"""

from collections.abc import Sequence


def assign_replicas(
    brokers: Sequence[int],
    partitions: int,
    replication_factor: int,
    *,
    first_index: int,
    shift: int,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """Return the replicas of `partitions` new partitions, the preferred leader first.

    Arguments:
        brokers: ids of the live brokers, at least `replication_factor` of them.
        first_index, shift: where leaders and followers begin; random for a new topic.
        first_partition: index of the first new partition (CreatePartitions continues after the last one).
    """
    ordered = sorted(brokers)
    count = len(ordered)
    assert 1 <= replication_factor <= count, "the caller checks the factor against the live brokers"
    if replication_factor == 1:  # 10,000 partitions of a request within a millisecond: they share a few tuples
        alone = [(broker,) for broker in ordered]
        return [
            alone[(first_index + partition) % count]
            for partition in range(first_partition, first_partition + partitions)
        ]
    assigned = []
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        leader = (first_index + partition) % count
        followers = [_follower(leader, shift, nth, count) for nth in range(replication_factor - 1)]
        assigned.append(tuple(ordered[index] for index in (leader, *followers)))
    return assigned


def _follower(leader: int, shift: int, nth: int, count: int) -> int:
    return (leader + 1 + (shift + nth) % (count - 1)) % count
