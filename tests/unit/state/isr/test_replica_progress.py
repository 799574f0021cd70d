"""What a leader knows of a follower: whether it is caught up."""

import pytest

from kafkalite.state.isr.replica_progress import UNKNOWN_OFFSET, ReplicaProgress

LAG_MS = 1_000


def fetching(*fetches: tuple[int, int, int]) -> ReplicaProgress:
    """A follower after fetches: (offset, the leader's log end, time in ms)."""
    progress = ReplicaProgress()
    for offset, leader_end, now_ms in fetches:
        assert progress.record_fetch(5, offset, 0, leader_end, now_ms)
    return progress


def test_replica_without_a_fetch_is_not_caught_up() -> None:
    progress = ReplicaProgress()
    assert not progress.is_caught_up(0, 0, LAG_MS)
    assert progress.end_offset == progress.broker_epoch == progress.log_start_offset == -1


def test_fetch_at_the_log_end_is_caught_up_for_the_allowed_lag() -> None:
    progress = fetching((10, 10, 5_000))
    assert progress.is_caught_up(11, 6_000, LAG_MS)
    assert not progress.is_caught_up(11, 6_001, LAG_MS)
    assert progress.is_caught_up(10, 60_000, LAG_MS), "it has every record"


def test_fetch_at_the_previous_log_end_counts_from_the_previous_fetch() -> None:
    """A leader that appends between any two fetches: the follower is never at the log end, and is in sync."""
    progress = fetching((0, 10, 1_000), (10, 20, 1_900), (20, 30, 2_800))
    assert progress.caught_up_ms == 1_900
    assert progress.is_caught_up(30, 2_900, LAG_MS)
    assert not progress.is_caught_up(30, 2_901, LAG_MS)


def test_slow_follower_is_not_caught_up_however_often_it_fetches() -> None:
    progress = fetching((0, 100, 1_000), (50, 200, 1_100), (100, 300, 1_200), (150, 400, 1_300))
    assert progress.caught_up_ms < 0
    assert not progress.is_caught_up(400, 1_300, LAG_MS)


def test_fetch_of_an_earlier_registration_is_ignored() -> None:
    progress = fetching((10, 10, 1_000))
    assert not progress.record_fetch(4, 20, 3, 20, 2_000)
    assert (progress.end_offset, progress.log_start_offset, progress.caught_up_ms) == (10, 0, 1_000)
    assert progress.record_fetch(6, 2, 1, 20, 2_000)
    assert (progress.end_offset, progress.log_start_offset, progress.broker_epoch) == (2, 1, 6)
    assert progress.record_fetch(-1, 3, 1, 20, 2_000), "no epoch was sent"


@pytest.mark.parametrize("in_sync", [True, False])
def test_member_of_the_isr_has_the_allowed_lag_in_a_new_epoch(in_sync: bool) -> None:
    progress = fetching((10, 20, 1_000))
    progress.begin_epoch(20, 5_000, in_sync=in_sync)
    assert progress.is_caught_up(20, 6_000, LAG_MS) is in_sync
    assert not progress.is_caught_up(20, 6_001, LAG_MS)
    assert progress.end_offset == UNKNOWN_OFFSET, "the follower may have truncated its log"
