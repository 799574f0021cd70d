"""The positions of a consumer, and where it begins to read."""

import pytest
from kafkalite_sdk.consumer.offsets.offset_reset import EARLIEST, LATEST, ResetPolicy, parse_reset_policy
from kafkalite_sdk.consumer.offsets.positions import NO_POSITION, Positions

from kafkalite.model import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def positions_of(*partitions):
    positions = Positions(LATEST)
    positions.assign(partitions)
    return positions


def test_kept_partitions_keep_their_state_and_assigned_again_ones_get_a_new_state():
    positions = positions_of(A, B)
    kept, lost = positions.states[A], positions.states[B]
    assert positions.assign([A, C]) == ([C], [B])
    assert positions.states[A] is kept
    positions.assign([A, B])
    assert positions.states[B] is not lost


def test_new_partition_waits_for_its_committed_offset():
    state = positions_of(A).states[A]
    assert state.needs_committed and state.position == NO_POSITION
    assert not state.fetchable(0) and not state.readable


def test_seek_ends_reset_and_validation():
    positions = positions_of(A)
    state = positions.states[A]
    positions.begin_reset(state, EARLIEST)
    assert not state.fetchable(0) and not state.needs_committed
    positions.seek(state, 7)
    assert state.fetchable(0) and state.reset is None and state.position == 7


def test_paused_partition_is_neither_fetched_nor_read():
    positions = positions_of(A)
    state = positions.states[A]
    positions.seek(state, 0)
    positions.pause(state)
    assert not state.fetchable(0) and not state.readable
    positions.resume(state)
    assert state.fetchable(0) and state.readable


def test_revoked_partition_is_neither_fetched_nor_read():
    positions = positions_of(A, B)
    for state in positions.states.values():
        positions.seek(state, 0)
    positions.begin_revocation([A, C])
    assert [state.fetchable(0) for state in positions.states.values()] == [False, True]


def test_position_is_validated_once_per_leader_epoch():
    positions = positions_of(A)
    state = positions.states[A]
    positions.seek(state, 5, leader_epoch=2)
    assert state.validating and not state.fetchable(0)
    positions.validated(state, 3)
    assert state.fetchable(0)
    positions.leader_epoch_changed(state, 3)
    assert not state.validating
    positions.leader_epoch_changed(state, 4)
    assert state.validating


def test_position_without_epoch_is_not_validated():
    positions = positions_of(A)
    state = positions.states[A]
    positions.seek(state, 5)
    positions.leader_epoch_changed(state, 4)
    assert state.fetchable(0)


def test_every_change_of_what_is_fetched_is_counted():
    positions = positions_of(A)
    state = positions.states[A]
    for change in (
        lambda: positions.seek(state, 1, 1),
        lambda: positions.validated(state, 1),
        lambda: positions.leader_epoch_changed(state, 2),
        lambda: positions.pause(state),
        lambda: positions.resume(state),
        lambda: positions.begin_reset(state, LATEST),
        lambda: positions.begin_revocation([A]),
        lambda: positions.assign([]),
    ):
        before = positions.changes
        change()
        assert positions.changes > before


def test_backoff_delays_the_next_fetch():
    positions = positions_of(A)
    state = positions.states[A]
    positions.seek(state, 1)
    state.retry_at = 10.0
    assert not state.fetchable(9.9) and state.fetchable(10.0) and state.readable


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("none", None),
        ("by_duration:PT1H", ResetPolicy(-1, 3_600_000)),
        ("by_duration:P1DT2H3M4.5S", ResetPolicy(-1, 93_784_500)),
    ],
)
def test_reset_policies(text, policy):
    assert parse_reset_policy(text) == policy


@pytest.mark.parametrize(
    "text", ["", "first", "by_duration", "by_duration:", "by_duration:P", "by_duration:1h", "x:PT1H"]
)
def test_unknown_reset_policy_names_the_known_ones(text):
    with pytest.raises(ValueError, match="expected 'earliest', 'latest', 'none' or 'by_duration"):
        parse_reset_policy(text)


def test_timestamp_of_a_policy():
    assert EARLIEST.timestamp(1000) == -2 and LATEST.timestamp(1000) == -1
    assert ResetPolicy(-1, 300).timestamp(1000) == 700 and ResetPolicy(-1, 3000).timestamp(1000) == 0
