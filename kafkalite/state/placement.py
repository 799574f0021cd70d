"""Assigns the replicas of new partitions to brokers: AdminUtils.assignReplicasToBrokers of Kafka 3.9 (KIP-36).

Leaders go round robin over the brokers from a random start. The followers of a partition have a distance that grows by
one each time all brokers have led once, so that the load of a lost broker spreads over all others. With racks, the
brokers are ordered so that racks alternate, and a partition has no second replica in a rack before it has one in each.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

from kafkalite.errors import KafkaErrorCode


class PlacementError(Exception):
    """The brokers cannot host such partitions. `code` is the error of the request."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def assign_replicas(
    racks: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    *,
    first_index: int,
    shift: int,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """Return the replicas of `partitions` new partitions, the preferred leader first.

    Arguments:
        racks: the live brokers with their racks; None = no rack.
        partitions: their number.
        replication_factor: number of replicas of each.
        first_index, shift: where leaders and followers begin; random for a new topic.
        first_partition: index of the first new partition (CreatePartitions continues after the last one).

    Raises PlacementError for numbers below 1, for more replicas than brokers, and if only some brokers have a rack.
    """
    _check(racks, partitions, replication_factor)
    ordered = alternate_racks(racks)
    count = len(ordered)
    indexes = range(first_partition, first_partition + partitions)
    if replication_factor == 1:  # 10,000 partitions of a request within a millisecond: they share a few tuples
        alone = [(broker,) for broker in ordered]
        return [alone[(first_index + partition) % count] for partition in indexes]
    assigned = []
    for partition in indexes:
        if partition > 0 and partition % count == 0:
            shift += 1
        leader = (first_index + partition) % count
        assigned.append(_replicas(ordered, racks, leader, shift, replication_factor))
    return assigned


def alternate_racks(racks: Mapping[int, str | None]) -> list[int]:
    """The brokers, one of each rack after the other; in the order of their ids if they have no racks."""
    by_rack: dict[str, list[int]] = {}
    for broker, rack in sorted(racks.items()):
        by_rack.setdefault(rack or "", []).append(broker)
    rows = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for broker in chain.from_iterable(rows) if broker is not None]


def _check(racks: Mapping[int, str | None], partitions: int, replication_factor: int) -> None:
    if partitions < 1:
        raise PlacementError(
            KafkaErrorCode.INVALID_PARTITIONS, f"Number of partitions was {partitions}, expected >= 1."
        )
    if replication_factor < 1:
        raise PlacementError(
            KafkaErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor must be larger than 0, but was {replication_factor}.",
        )
    if replication_factor > len(racks):
        raise PlacementError(
            KafkaErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(racks)}.",
        )
    without = sorted(broker for broker, rack in racks.items() if rack is None)
    if without and len(without) < len(racks):
        raise PlacementError(
            KafkaErrorCode.UNKNOWN_SERVER_ERROR,
            f"The brokers {without} have no broker.rack, but others have one: set it for all brokers or for none.",
        )


def _replicas(
    ordered: Sequence[int], racks: Mapping[int, str | None], leader: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    """The replicas of a partition whose leader is `ordered[leader]`."""
    rack_count = len(set(racks.values()))
    without_racks = racks[ordered[0]] is None
    distance = shift if without_racks else shift * rack_count
    chosen = [ordered[leader]]
    used = {racks[ordered[leader]]}
    attempt = 0
    while len(chosen) < replication_factor:
        broker = ordered[_follower(leader, distance, attempt, len(ordered))]
        attempt += 1
        if broker not in chosen and (racks[broker] not in used or len(used) == rack_count):
            chosen.append(broker)
            used.add(racks[broker])
    return tuple(chosen)


def _follower(leader: int, shift: int, nth: int, count: int) -> int:
    return (leader + 1 + (shift + nth) % (count - 1)) % count
