"""`state.follower.fetch_state`: its table, and what the errors of a fetch mean."""

import re

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.follower import fetch_state
from kafkalite.state.follower.fetch_state import EXPECTED, TRANSITIONS, FetchEvent, FetchState, event_of, next_state


def test_documented_table_is_the_table() -> None:
    rows = re.findall(r"^\| ([A-Z]+) \| ([A-Z_]+) \| ([A-Z]+) \|$", fetch_state.__doc__ or "", re.MULTILINE)
    documented = {(FetchState[state], FetchEvent[event]): FetchState[after] for state, event, after in rows}
    assert documented == dict(TRANSITIONS)


def test_every_state_but_the_ends_can_be_left_for_fetching() -> None:
    reached = {FetchState.FETCHING}
    for _ in FetchState:
        reached |= {state for (state, _), after in TRANSITIONS.items() if after in reached}
    assert set(FetchState) - reached == {FetchState.FENCED, FetchState.FAILED}


@pytest.mark.parametrize("state", [FetchState.FENCED, FetchState.FAILED])
def test_partition_that_waits_for_its_assignment_has_no_events(state: FetchState) -> None:
    for event in FetchEvent:
        with pytest.raises(KeyError):
            next_state(state, event)


def test_errors_of_a_fetch() -> None:
    assert event_of(KafkaErrorCode.OFFSET_OUT_OF_RANGE) is FetchEvent.OUT_OF_RANGE
    assert event_of(KafkaErrorCode.FENCED_LEADER_EPOCH) is FetchEvent.FENCED
    others = EXPECTED - {KafkaErrorCode.OFFSET_OUT_OF_RANGE, KafkaErrorCode.FENCED_LEADER_EPOCH}
    assert {event_of(error) for error in (*others, KafkaErrorCode.CORRUPT_MESSAGE, 9_999)} == {FetchEvent.RETRY}
