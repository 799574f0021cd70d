"""The high watermark of a leader: the end of the records that all replicas have for which it waits.

`cluster/partition/leader` moves it, and not while the ISR is below the minimum of in-sync replicas.

Source: Partition.maybeIncrementLeaderHW of Apache Kafka 3.9.
"""

from collections.abc import Callable, Container, Mapping

from kafkalite.state.isr.replica_progress import ReplicaProgress


def lowest_end_offset(
    own_end_offset: int,
    followers: Mapping[int, ReplicaProgress],
    required: Container[int],
    is_awaited: Callable[[int, ReplicaProgress], bool],
) -> int:
    """The end of the records that each replica has which the leader waits for: its high watermark, if it is higher
    than before.

    Arguments:
        own_end_offset: the leader's end, only of flushed records where a flush is required.
        followers: the other replicas, by broker id.
        required: the ISR with members that the controller has not confirmed yet.
        is_awaited: whether the leader waits for a replica that is not required: it is alive and caught up, and could
            not join the ISR if the high watermark always moved away from it.
    """
    lowest = own_end_offset
    for replica_id, progress in followers.items():
        if progress.end_offset < lowest and (replica_id in required or is_awaited(replica_id, progress)):
            lowest = progress.end_offset
    return lowest
