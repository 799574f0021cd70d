"""How a leader changes its ISR: followers that join and leave, one change in flight, and responses of every form."""

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.state.isr.partition_isr import (
    CommittedIsr,
    IsrChange,
    IsrMember,
    PartitionIsr,
    Result,
)
from kafkalite.state.isr.replica_progress import ReplicaProgress

LAG_MS = 30_000
OWN, OWN_EPOCH = 1, 77


def follower(end_offset: int, fetched_ms: int = 0, broker_epoch: int = 5) -> ReplicaProgress:
    """A follower that has fetched once, when the leader had 10 records."""
    progress = ReplicaProgress()
    assert progress.record_fetch(broker_epoch, end_offset, 0, 10, fetched_ms)
    return progress


class Story:
    """A leader with the followers 2 and 3, of which the ISR has some."""

    def __init__(self, *isr: int) -> None:
        self.isr = PartitionIsr(OWN, OWN_EPOCH, CommittedIsr(isr, 4, 7))
        self.followers = {2: follower(10), 3: follower(10)}

    def expand(self, replica_id: int = 3, *, eligible: bool = True) -> IsrChange | None:
        return self.isr.expand(replica_id, self.followers, high_watermark=8, epoch_start=9, eligible=eligible)

    def expanding(self) -> IsrChange:
        change = self.expand()
        assert change is not None
        return change

    def shrink(self, now_ms: int, leader_end: int = 11) -> IsrChange | None:
        return self.isr.shrink(self.followers, leader_end, now_ms, LAG_MS)


def test_follower_joins_when_it_has_all_that_may_be_committed() -> None:
    story = Story(1, 2)
    change = story.expanding()
    assert change == ((IsrMember(1, OWN_EPOCH), IsrMember(2, 5), IsrMember(3, 5)), 4, 7, 3)
    assert story.isr.expected == (3,), "the high watermark waits for it already"
    assert story.isr.committed.isr == (1, 2)
    assert story.isr.apply_response(change, CommittedIsr((1, 2, 3), 4, 8)) == Result.APPLIED
    assert (story.isr.committed.isr, story.isr.expected, story.isr.pending) == ((1, 2, 3), (), None)


@pytest.mark.parametrize(("end_offset", "joins"), [(7, False), (8, False), (9, True), (10, True)])
def test_follower_behind_the_start_of_the_epoch_does_not_join(end_offset: int, joins: bool) -> None:
    story = Story(1, 2)
    story.followers[3] = follower(end_offset)
    assert (story.expand() is not None) is joins


def test_follower_that_is_not_eligible_or_a_member_does_not_join() -> None:
    story = Story(1, 2)
    assert story.expand(eligible=False) is None
    assert story.expand(2) is None


def test_follower_leaves_when_it_lags() -> None:
    story = Story(1, 2, 3)
    assert story.shrink(LAG_MS) is None
    story.followers[2] = follower(10, fetched_ms=20_000)
    change = story.shrink(LAG_MS + 1)
    assert change == ((IsrMember(1, OWN_EPOCH), IsrMember(2, 5)), 4, 7, None)
    assert story.isr.committed.isr == (1, 2, 3), "the high watermark waits for it until its removal is committed"
    assert story.isr.expected == ()


def test_follower_at_the_log_end_does_not_leave_however_long_ago_it_fetched() -> None:
    assert Story(1, 2, 3).shrink(10 * LAG_MS, leader_end=10) is None


def test_leader_stays_when_all_followers_lag_or_are_unassigned() -> None:
    story = Story(2, 1, 3)
    del story.followers[3]
    change = story.shrink(10 * LAG_MS)
    assert change is not None and change.isr == (IsrMember(1, OWN_EPOCH),)


def test_one_change_is_in_flight() -> None:
    story = Story(1, 2)
    story.expanding()
    assert story.expand() is None and story.shrink(10 * LAG_MS) is None


def test_member_that_has_not_fetched_from_this_leader_has_no_epoch() -> None:
    story = Story(1, 2)
    story.followers[2] = ReplicaProgress()
    assert story.expanding().isr[1] == IsrMember(2, -1)


@pytest.mark.parametrize("error", [KafkaErrorCode.INELIGIBLE_REPLICA, KafkaErrorCode.OPERATION_NOT_ATTEMPTED])
def test_change_that_was_not_applied_is_reverted(error: int) -> None:
    story = Story(1, 2)
    assert story.isr.apply_error(story.expanding(), error) == Result.REVERTED
    assert story.isr.expected == ()
    assert story.expand() is not None, "with the next fetch"


@pytest.mark.parametrize(
    "error",
    [
        KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaErrorCode.UNKNOWN_TOPIC_ID,
        KafkaErrorCode.FENCED_LEADER_EPOCH,
        KafkaErrorCode.INVALID_UPDATE_VERSION,
        KafkaErrorCode.INVALID_REQUEST,
        KafkaErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_change_of_a_state_that_may_be_old_waits_for_the_next_one(error: int) -> None:
    story = Story(1, 2)
    assert story.isr.apply_error(story.expanding(), error) == Result.WAITING
    assert story.isr.expected == (3,), "it may have been applied"
    assert story.expand() is None
    assert story.isr.receive_state(CommittedIsr((1, 2), 4, 9))
    assert story.isr.expected == () and story.expand() is not None


@pytest.mark.parametrize("error", [KafkaErrorCode.NOT_CONTROLLER, KafkaErrorCode.REQUEST_TIMED_OUT, -1])
def test_other_errors_repeat_the_change(error: int) -> None:
    story = Story(1, 2)
    change = story.expanding()
    assert story.isr.apply_error(change, error) == Result.REPEATED
    assert story.isr.pending is change


def test_response_after_a_newer_state_is_ignored() -> None:
    story = Story(1, 2)
    change = story.expanding()
    assert story.isr.receive_state(CommittedIsr((1,), 5, 9))
    assert story.isr.apply_response(change, CommittedIsr((1, 2, 3), 4, 8)) == Result.IGNORED
    assert story.isr.apply_error(change, KafkaErrorCode.INELIGIBLE_REPLICA) == Result.IGNORED
    assert story.isr.committed == CommittedIsr((1,), 5, 9)


@pytest.mark.parametrize("response", [CommittedIsr((1, 2, 3), 5, 8), CommittedIsr((1, 2, 3), 4, 6)])
def test_response_of_another_leader_epoch_or_an_older_state_changes_nothing(response: CommittedIsr) -> None:
    story = Story(1, 2)
    assert story.isr.apply_response(story.expanding(), response) == Result.IGNORED
    assert story.isr.committed == CommittedIsr((1, 2), 4, 7)


def test_response_with_the_known_partition_epoch_ends_the_change() -> None:
    """The controller had nothing to change."""
    story = Story(1, 2)
    assert story.isr.apply_response(story.expanding(), CommittedIsr((1, 2), 4, 7)) == Result.APPLIED
    assert story.isr.pending is None


def test_older_state_of_the_controller_is_ignored() -> None:
    story = Story(1, 2)
    change = story.expanding()
    assert not story.isr.receive_state(CommittedIsr((1,), 4, 6))
    assert story.isr.pending is change


def test_known_state_that_is_sent_again_leaves_the_change_in_flight() -> None:
    story = Story(1, 2)
    change = story.expanding()
    assert not story.isr.receive_state(CommittedIsr((1, 2), 4, 7)), "the change may still be applied to it"
    assert story.isr.pending is change and story.isr.expected == (3,)
    assert story.isr.apply_response(change, CommittedIsr((1, 2, 3), 4, 8)) == Result.APPLIED
    assert story.isr.receive_state(CommittedIsr((1, 2, 3), 4, 8)), "without a change it is used"
