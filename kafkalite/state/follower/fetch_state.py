"""What a follower does with one of its partitions: the transitions, and what the errors of a fetch mean.

| state | event | next state |
|---|---|---|
| FETCHING | APPENDED | FETCHING |
| FETCHING | DIVERGED | CHANGING |
| FETCHING | OUT_OF_RANGE | LISTING |
| FETCHING | RETRY | DELAYED |
| FETCHING | FENCED | FENCED |
| FETCHING | FAILED | FAILED |
| LISTING | DIVERGED | CHANGING |
| LISTING | READY | FETCHING |
| LISTING | RETRY | DELAYED |
| LISTING | FENCED | FENCED |
| CHANGING | READY | FETCHING |
| CHANGING | RETRY | DELAYED |
| CHANGING | FAILED | FAILED |
| DELAYED | READY | FETCHING |

A partition that is assigned in another leader epoch begins again: at CHANGING while a job still works on its log, else
at FETCHING. Every other event is an error of the caller.

Source: AbstractFetcherThread.processFetchRequest of Apache Kafka 3.9, where a failed partition is fetched again after
the next LeaderAndIsr request as well.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from kafkalite.errors import KafkaErrorCode


class FetchState(Enum):
    """The state of a partition."""

    FETCHING = "the next fetch names it"
    LISTING = "the leader is asked for the offsets of its log"
    CHANGING = "a job truncates or restarts its log"
    DELAYED = "it is fetched again after the back-off"
    FENCED = "the leader has another leader epoch: the controller assigns it again"
    FAILED = "its log is offline"


class FetchEvent(Enum):
    """What happens to a partition."""

    APPENDED = "the response is applied"
    DIVERGED = "the log must be truncated or restarted"
    OUT_OF_RANGE = "the leader does not have the offset"
    READY = "it can be fetched"
    RETRY = "an error that may pass"
    FENCED = "the leader has another leader epoch"
    FAILED = "the log cannot be written"


_S, _E = FetchState, FetchEvent
TRANSITIONS: Mapping[tuple[FetchState, FetchEvent], FetchState] = MappingProxyType(
    {
        (_S.FETCHING, _E.APPENDED): _S.FETCHING,
        (_S.FETCHING, _E.DIVERGED): _S.CHANGING,
        (_S.FETCHING, _E.OUT_OF_RANGE): _S.LISTING,
        (_S.FETCHING, _E.RETRY): _S.DELAYED,
        (_S.FETCHING, _E.FENCED): _S.FENCED,
        (_S.FETCHING, _E.FAILED): _S.FAILED,
        (_S.LISTING, _E.DIVERGED): _S.CHANGING,
        (_S.LISTING, _E.READY): _S.FETCHING,
        (_S.LISTING, _E.RETRY): _S.DELAYED,
        (_S.LISTING, _E.FENCED): _S.FENCED,
        (_S.CHANGING, _E.READY): _S.FETCHING,
        (_S.CHANGING, _E.RETRY): _S.DELAYED,
        (_S.CHANGING, _E.FAILED): _S.FAILED,
        (_S.DELAYED, _E.READY): _S.FETCHING,
    }
)

EVENTS: Mapping[int, FetchEvent] = MappingProxyType(
    {
        KafkaErrorCode.OFFSET_OUT_OF_RANGE: FetchEvent.OUT_OF_RANGE,
        KafkaErrorCode.FENCED_LEADER_EPOCH: FetchEvent.FENCED,
    }
)
"""What an error of a partition in a response means; every other one is repeated after the back-off."""

EXPECTED = frozenset(
    {
        KafkaErrorCode.NOT_LEADER_OR_FOLLOWER,
        KafkaErrorCode.UNKNOWN_LEADER_EPOCH,
        KafkaErrorCode.FENCED_LEADER_EPOCH,
        KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaErrorCode.UNKNOWN_TOPIC_ID,
        KafkaErrorCode.OFFSET_NOT_AVAILABLE,
        KafkaErrorCode.OFFSET_OUT_OF_RANGE,
        KafkaErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that occur while leaders change or a leader's disk fails: they are no warning of the follower."""


def event_of(error: int) -> FetchEvent:
    """The event of a partition's error code, which is not 0."""
    return EVENTS.get(error, FetchEvent.RETRY)


def next_state(state: FetchState, event: FetchEvent) -> FetchState:
    """The state after an event. Raises KeyError: the event does not occur in this state."""
    return TRANSITIONS[state, event]
