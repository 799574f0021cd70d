"""The states of a fetched partition; the cases are those of AbstractFetcherThreadTest of Apache Kafka."""

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.follower.partition_fetch import (
    REPORTED_FAILURES,
    TRANSITIONS,
    FetchEvent,
    FetchState,
    PartitionFetch,
    event_of,
)

JOBS = [FetchState.TRUNCATING, FetchState.RESTARTING, FetchState.FLUSHING]


def in_state(state: FetchState) -> PartitionFetch:
    fetch = PartitionFetch()
    fetch.state = state
    return fetch


def test_every_state_can_be_left_and_is_reached() -> None:
    assert set(TRANSITIONS) == set(FetchState)
    reached = {after for state, events in TRANSITIONS.items() for after in events.values() if after is not state}
    assert reached == set(FetchState)


@pytest.mark.parametrize("state", list(FetchState))
def test_newer_epoch_is_accepted_in_every_state_and_waits_for_what_changes_the_log(state: FetchState) -> None:
    after = in_state(state).apply(FetchEvent.NEW_EPOCH)
    assert after is (state if state in JOBS else FetchState.FETCHING)


@pytest.mark.parametrize("state", list(FetchState))
def test_log_directory_may_go_offline_in_every_state(state: FetchState) -> None:
    assert in_state(state).apply(FetchEvent.LOG_FAILED) is FetchState.FAILED


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (KafkaErrorCode.NONE, FetchState.FETCHING),
        (KafkaErrorCode.OFFSET_OUT_OF_RANGE, FetchState.LOOKING_UP),
        (KafkaErrorCode.FENCED_LEADER_EPOCH, FetchState.FAILED),
        (KafkaErrorCode.UNKNOWN_LEADER_EPOCH, FetchState.DELAYED),
        (KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, FetchState.DELAYED),
        (KafkaErrorCode.OFFSET_NOT_AVAILABLE, FetchState.DELAYED),
        (KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, FetchState.DELAYED),
        (KafkaErrorCode.UNKNOWN_TOPIC_ID, FetchState.DELAYED),
        (KafkaErrorCode.INCONSISTENT_TOPIC_ID, FetchState.DELAYED),
        (KafkaErrorCode.KAFKA_STORAGE_ERROR, FetchState.DELAYED),
        (KafkaErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, FetchState.DELAYED),
        (KafkaErrorCode.UNKNOWN_SERVER_ERROR, FetchState.DELAYED),
        (12_345, FetchState.DELAYED),
    ],
)
def test_errors_of_a_fetch_response(error: int, state: FetchState) -> None:
    assert PartitionFetch().apply(event_of(error)) is state


def test_expected_error_is_reported_when_it_persists_and_an_unexpected_one_at_once() -> None:
    fetch = PartitionFetch()
    reported = []
    for _ in range(REPORTED_FAILURES):
        fetch.apply(FetchEvent.REFUSED)
        reported.append(fetch.is_reported(KafkaErrorCode.UNKNOWN_LEADER_EPOCH))
        fetch.apply(FetchEvent.PAUSE_ENDED)
    assert reported == [False] * (REPORTED_FAILURES - 1) + [True]
    assert PartitionFetch().is_reported(KafkaErrorCode.KAFKA_STORAGE_ERROR)


@pytest.mark.parametrize("event", [FetchEvent.RECORDS, FetchEvent.FLUSH_REQUIRED, FetchEvent.NEW_EPOCH])
def test_failures_are_those_in_a_row(event: FetchEvent) -> None:
    fetch = PartitionFetch()
    for _ in range(3):
        fetch.apply(FetchEvent.REFUSED)
        fetch.apply(FetchEvent.PAUSE_ENDED)
    assert fetch.failures == 3
    fetch.apply(event)
    assert fetch.failures == 0


@pytest.mark.parametrize("state", [FetchState.TRUNCATING, FetchState.RESTARTING])
def test_log_that_a_job_changes_gets_no_records(state: FetchState) -> None:
    with pytest.raises(KeyError):
        in_state(state).apply(FetchEvent.RECORDS)
    assert in_state(state).apply(FetchEvent.JOB_ENDED) is FetchState.FETCHING
