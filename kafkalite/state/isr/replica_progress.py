"""The progress of a follower, as its leader knows it from the follower's fetches.

1. A fetch at an offset says that the follower has every record below it.
2. A follower is caught up if it has fetched, within the allowed lag, at an offset that was the leader's log end then.
   A fetch that is a little late counts from the fetch before it: otherwise a follower would never catch up with a
   leader that appends all the time.
3. A fetch of an earlier registration of the broker is ignored (KIP-903).

All times are milliseconds of one monotonic clock. Source: Replica.scala of Apache Kafka 3.9.
"""

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1
LONG_AGO_MS = -(2**62)


class ReplicaProgress:
    """What a leader knows of one follower.

    Attributes:
        broker_epoch: of the registration that has sent the last fetch, -1 before the first fetch.
        end_offset: of the follower's log, -1 = unknown.
        log_start_offset: of the follower's log, -1 = unknown.
        fetched_ms: when it has fetched last.
        caught_up_ms: the last time at which it had all records of the leader.
    """

    __slots__ = ("_leader_end_offset", "broker_epoch", "caught_up_ms", "end_offset", "fetched_ms", "log_start_offset")

    def __init__(self) -> None:
        self.broker_epoch = UNKNOWN_EPOCH
        self.end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.fetched_ms = LONG_AGO_MS
        self.caught_up_ms = LONG_AGO_MS
        self._leader_end_offset = UNKNOWN_OFFSET  # at the last fetch

    def begin_epoch(self, leader_end_offset: int, now_ms: int, *, in_sync: bool) -> None:
        """Begin a leader epoch: the end of the follower's log is unknown until it fetches.

        Another broker may have led meanwhile, while this one was paused and noticed nothing, and the follower may have
        truncated its log. A member of the ISR has the allowed lag to fetch; another replica does not delay the high
        watermark before it has caught up.

        Deviation: a leader of Apache Kafka that is elected again keeps the ends that it knew
        (Replica.resetReplicaState).

        Arguments:
            leader_end_offset: the log end where the epoch begins.
            now_ms: the current time.
            in_sync: whether the replica is in the ISR.
        """
        self.end_offset = self.log_start_offset = UNKNOWN_OFFSET
        self._leader_end_offset = leader_end_offset
        self.fetched_ms = self.caught_up_ms = now_ms if in_sync else LONG_AGO_MS

    def record_fetch(
        self, broker_epoch: int, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> bool:
        """Record a fetch. Returns False, with nothing recorded, for one of an earlier registration of the broker.

        Arguments:
            broker_epoch: of the broker's registration, -1 = not sent.
            offset: the offset of the fetch: the end of the follower's log.
            log_start_offset: of the follower's log.
            leader_end_offset: the leader's log end at this time.
            now_ms: the current time.
        """
        if UNKNOWN_EPOCH < broker_epoch < self.broker_epoch:
            return False
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self._leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.broker_epoch = broker_epoch
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.fetched_ms = now_ms
        self._leader_end_offset = max(self._leader_end_offset, leader_end_offset)
        return True

    def renew(self, fetched_ms: int) -> None:
        """Record later fetches at the offset of the last recorded one, which was the leader's log end until now.

        Arguments:
            fetched_ms: when the last of them was received.
        """
        self.fetched_ms = max(self.fetched_ms, fetched_ms)
        self.caught_up_ms = max(self.caught_up_ms, fetched_ms)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether the follower has all records below `leader_end_offset`.

        Or it had all that there were, at most `lag_max_ms` before `now_ms`.
        """
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_max_ms
