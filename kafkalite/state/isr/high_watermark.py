"""The high watermark of a leader: for which replicas it waits, and when it moves.

1. It is the lowest end among the leader, the ISR, and the replicas that are about to join the ISR.
2. It never decreases, and does not move while the ISR is below the minimum of in-sync replicas.

Pure: `cluster/partition/leader` has the state, and answers what the high watermark has passed.
Source: Partition.maybeIncrementLeaderHW of Apache Kafka 3.9.
"""

from collections.abc import Callable, Container, Mapping

from kafkalite.state.isr.replica_progress import ReplicaProgress


def next_high_watermark(high_watermark: int, lowest_end: int, in_sync: int, minimum: int) -> int:
    """The high watermark after `high_watermark`.

    Arguments:
        high_watermark: the present one.
        lowest_end: of the replicas for which the leader waits.
        in_sync: number of the members of the ISR that the controller has confirmed.
        minimum: of in-sync replicas, at most the number of replicas.
    """
    return lowest_end if in_sync >= minimum and lowest_end > high_watermark else high_watermark


def is_awaited(
    progress: ReplicaProgress, leader_end: int, now_ms: int, lag_max_ms: int, *, live: bool, rejected: bool
) -> bool:
    """Whether the leader waits for a replica outside the ISR, which is about to join it: it is caught up and alive.

    Arguments:
        progress: of the replica.
        leader_end: the log end of the leader.
        now_ms: milliseconds of the clock of `progress`.
        lag_max_ms: how long a follower may lag (`replica.lag.time.max.ms`).
        live: whether its broker is alive, with the registration that has fetched.
        rejected: whether the controller has refused to add it.
    """
    return live and not rejected and progress.is_caught_up(leader_end, now_ms, lag_max_ms)


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
