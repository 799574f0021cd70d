"""When a follower leaves the ISR: it lags for longer than `replica.lag.time.max.ms`.

1. A follower stays while it is caught up: it has all records of the leader, or had them within the allowed lag
   (`ReplicaProgress.is_caught_up`). A member that has never fetched from this leader leaves.
2. The leader itself never leaves.
3. The checks are due every half of the allowed lag. A check that is late by more than that removes no follower: this
   process was stopped or had no core, and the fetches of that time are not received yet.

All times are milliseconds of one monotonic clock. Source: Partition.getOutOfSyncReplicas of Apache Kafka 3.9.
"""

from collections.abc import Mapping

from kafkalite.state.isr.replica_progress import ReplicaProgress


def members_in_sync(
    isr: tuple[int, ...],
    own_id: int,
    followers: Mapping[int, ReplicaProgress],
    leader_end_offset: int,
    now_ms: int,
    lag_max_ms: int,
) -> tuple[int, ...]:
    """Return the members of an ISR that stay in it, in the same order.

    Arguments:
        isr: broker ids.
        own_id: broker id of the leader.
        followers: the progress of all followers, by broker id.
        leader_end_offset: the leader's log end.
        now_ms: the current time.
        lag_max_ms: the allowed lag.
    """
    return tuple(
        member
        for member in isr
        if member == own_id
        or (member in followers and followers[member].is_caught_up(leader_end_offset, now_ms, lag_max_ms))
    )


class LagChecks:
    """The times of the checks that remove followers (invariant 3).

    Arguments:
        now_ms: the current time.
    """

    __slots__ = ("_checked_ms",)

    def __init__(self, now_ms: int) -> None:
        self._checked_ms = now_ms

    def next_ms(self, lag_max_ms: int) -> int:
        """When the next check is due."""
        return self._checked_ms + lag_max_ms // 2

    def begin(self, now_ms: int, lag_max_ms: int) -> bool:
        """Begin a check; returns whether it may remove followers."""
        due_ms, self._checked_ms = self.next_ms(lag_max_ms), now_ms
        return now_ms - due_ms <= lag_max_ms // 2
