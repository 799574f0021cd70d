"""The states of a partition that a follower fetches, and what each result of a fetch means.

1. Only a partition in FETCHING is in the requests. All other states end with an event of this broker: the end of a
   pause, of a job, of a flush, of a lookup; or a newer leader epoch.
2. A job, or the flush that the next fetch needs, is awaited in a newer epoch, too: it changes the same log.
3. A partition that the leader fences waits for a newer epoch, which LeaderAndIsr has; so does one with a failed log.
4. Failures in a row make the pauses longer; records, an end of a job and a newer epoch reset them.

Source: AbstractFetcherThread.scala (processFetchRequest, onPartitionFenced, handleOutOfRangeError) of Apache Kafka 3.9.
There, the thread waits in the request for offsets, in truncations and in restarts; here they are states.
"""

from collections.abc import Mapping
from enum import Enum

from kafkalite.errors import KafkaErrorCode


class FetchState(Enum):
    """What is done with the partition at present."""

    FETCHING = "it is in the fetch requests"
    LOOKING_UP = "the leader is asked for its first and last offset"
    TRUNCATING = "a job truncates the log"
    RESTARTING = "a job restarts the log at another offset"
    FLUSHING = "the next fetch waits for a flush"
    DELAYED = "the next fetch waits for the end of a pause"
    FAILED = "no fetch before a newer leader epoch"


class FetchEvent(Enum):
    """What happens to the partition."""

    RECORDS = "a response without an error, perhaps without records, is applied"
    FLUSH_REQUIRED = "the records that were appended must be flushed before the next fetch"
    FLUSHED = "the flush has succeeded"
    DIVERGED = "the log must be truncated"
    OUT_OF_RANGE = "the leader does not have the offset"
    RESTART_REQUIRED = "the log must restart at another offset"
    JOB_ENDED = "the log is truncated, or has restarted"
    REFUSED = "this attempt has failed; the next one may succeed"
    THROTTLED = "the replication quota is exceeded"
    PAUSE_ENDED = "the pause after a failure, or of the quota, has ended"
    FENCED = "the leader has a newer epoch"
    LOG_FAILED = "the log directory is offline"
    NEW_EPOCH = "the controller has sent a newer leader epoch"


S, E = FetchState, FetchEvent

AFTER_FETCH: Mapping[FetchEvent, FetchState] = {
    E.RECORDS: S.FETCHING,
    E.FLUSH_REQUIRED: S.FLUSHING,
    E.DIVERGED: S.TRUNCATING,
    E.OUT_OF_RANGE: S.LOOKING_UP,
    E.RESTART_REQUIRED: S.RESTARTING,
    E.REFUSED: S.DELAYED,
    E.THROTTLED: S.DELAYED,
    E.FENCED: S.FAILED,
    E.LOG_FAILED: S.FAILED,
    E.NEW_EPOCH: S.FETCHING,
}
AFTER_LOOKUP: Mapping[FetchEvent, FetchState] = {
    E.DIVERGED: S.TRUNCATING,
    E.RESTART_REQUIRED: S.RESTARTING,
    E.REFUSED: S.DELAYED,
    E.FENCED: S.FAILED,
    E.LOG_FAILED: S.FAILED,
    E.NEW_EPOCH: S.FETCHING,
}
TRANSITIONS: Mapping[FetchState, Mapping[FetchEvent, FetchState]] = {
    S.FETCHING: AFTER_FETCH,
    S.LOOKING_UP: AFTER_LOOKUP,
    S.TRUNCATING: {
        E.JOB_ENDED: S.FETCHING,
        E.REFUSED: S.DELAYED,
        E.LOG_FAILED: S.FAILED,
        E.NEW_EPOCH: S.TRUNCATING,
    },
    S.RESTARTING: {
        E.JOB_ENDED: S.FETCHING,
        E.REFUSED: S.DELAYED,
        E.LOG_FAILED: S.FAILED,
        E.NEW_EPOCH: S.RESTARTING,
    },
    S.FLUSHING: {
        E.FLUSHED: S.FETCHING,
        E.REFUSED: S.DELAYED,
        E.LOG_FAILED: S.FAILED,
        E.NEW_EPOCH: S.FLUSHING,
    },
    S.DELAYED: {
        E.PAUSE_ENDED: S.FETCHING,
        E.LOG_FAILED: S.FAILED,
        E.NEW_EPOCH: S.FETCHING,
    },
    S.FAILED: {E.NEW_EPOCH: S.FETCHING, E.LOG_FAILED: S.FAILED},
}
"""The next state, by the state and the event. A pair that is missing does not occur."""

RESETS_FAILURES = frozenset({E.RECORDS, E.FLUSH_REQUIRED, E.JOB_ENDED, E.NEW_EPOCH})

ERRORS: Mapping[int, FetchEvent] = {
    KafkaErrorCode.NONE: E.RECORDS,
    KafkaErrorCode.OFFSET_OUT_OF_RANGE: E.OUT_OF_RANGE,
    KafkaErrorCode.FENCED_LEADER_EPOCH: E.FENCED,
}
"""What an error of the leader means; every other one is REFUSED."""

EXPECTED = frozenset(
    {
        # The leader has not received the state of the controller yet, or has another one already.
        KafkaErrorCode.UNKNOWN_LEADER_EPOCH,
        KafkaErrorCode.NOT_LEADER_OR_FOLLOWER,
        KafkaErrorCode.OFFSET_NOT_AVAILABLE,
        KafkaErrorCode.LEADER_NOT_AVAILABLE,
        # The topic is being created or deleted.
        KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaErrorCode.UNKNOWN_TOPIC_ID,
        KafkaErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that occur while leaders and topics change. They are reported only if they persist."""

REPORTED_FAILURES = 5  # in a row, from which on an expected error persists


def event_of(error: int) -> FetchEvent:
    """What an error code of a partition in a response of the leader means.

    OFFSET_MOVED_TO_TIERED_STORAGE is REFUSED and reported: logs here have no tiered storage.
    """
    return ERRORS.get(error, E.REFUSED)


class PartitionFetch:
    """The state in which a follower fetches one partition.

    Attributes:
        state: of the table.
        failures: in a row.
    """

    __slots__ = ("failures", "state")

    def __init__(self) -> None:
        self.state = FetchState.FETCHING
        self.failures = 0

    def apply(self, event: FetchEvent) -> FetchState:
        """Return the state after an event. Raises KeyError for an event that does not occur in the state."""
        self.state = TRANSITIONS[self.state][event]
        if event in RESETS_FAILURES:
            self.failures = 0
        elif event is FetchEvent.REFUSED:
            self.failures += 1
        return self.state

    def is_reported(self, error: int) -> bool:
        """Whether an error, after it was applied, is reported: it is unexpected, or it persists."""
        return error not in EXPECTED or self.failures >= REPORTED_FAILURES
