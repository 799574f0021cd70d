"""The leader of three replicas, with a controller whose responses the test writes: followers join and leave the ISR."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.cluster.isr.isr_changes import IsrChanges
from kafkalite.cluster.metadata.image import PartitionImage
from kafkalite.cluster.partition.leader import Leader
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from tests.unit.cluster.isr.scripted_controller import LAG_MS, OWN, OWN_EPOCH, LeadingBroker

ONE_OF_TWO = (1, 2)
TOO_LATE = KafkaErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
WAITING = [
    KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaErrorCode.UNKNOWN_TOPIC_ID,
    KafkaErrorCode.FENCED_LEADER_EPOCH,
    KafkaErrorCode.INVALID_UPDATE_VERSION,
    KafkaErrorCode.INVALID_REQUEST,
    KafkaErrorCode.NEW_LEADER_ELECTED,
]


def requested(broker: LeadingBroker) -> tuple[list[tuple[int, int]], int, int]:
    """The members with their broker epochs, the leader epoch and the partition epoch of the last request."""
    (asked,) = broker.controller.asked.values()
    members = [(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs]
    assert asked.new_isr == [broker_id for broker_id, _ in members]
    return members, asked.leader_epoch, asked.partition_epoch


@pytest.fixture
def two_in_sync(tmp_path: Path) -> LeadingBroker:
    """Follower 3 is outside the ISR; follower 2 has fetched."""
    broker = LeadingBroker(tmp_path, isr=ONE_OF_TWO)
    broker.fetch(2, 0)
    return broker


@pytest.fixture
def in_sync(tmp_path: Path) -> LeadingBroker:
    """All replicas have the first record."""
    broker = LeadingBroker(tmp_path)
    broker.append("first")
    broker.fetch(2, 1)
    broker.fetch(3, 1)
    assert broker.rig.answers() == [("first", 0, 0)]
    return broker


# Followers that join.


def test_follower_with_all_records_is_added(two_in_sync: LeadingBroker) -> None:
    broker = two_in_sync
    broker.fetch(3, 0, broker_epoch=6)
    assert requested(broker) == ([(OWN, OWN_EPOCH), (2, 5), (3, 6)], 1, 7)
    assert (broker.controller.requests[0].broker_id, broker.controller.requests[0].broker_epoch) == (OWN, OWN_EPOCH)
    assert broker.partition.isr == (1, 2) and tuple(broker.leader.isr) == (1, 2, 3)
    broker.controller.apply()
    assert (broker.partition.isr, broker.partition.partition_epoch) == ((1, 2, 3), 8)
    assert [broker.requests.counts.expands.value, broker.requests.counts.shrinks.value] == [1, 0]


def test_acknowledgement_waits_for_a_follower_whose_addition_is_requested(two_in_sync: LeadingBroker) -> None:
    broker = two_in_sync
    broker.fetch(3, 0)
    broker.append()
    broker.fetch(2, 1)
    assert broker.rig.answers() == [], "the addition may be committed before its response arrives"
    broker.controller.apply()
    assert broker.rig.answers() == []
    broker.fetch(3, 1)
    assert broker.rig.answers() == [("all", 0, 0)]


def test_follower_that_is_not_alive_or_lags_is_not_added(two_in_sync: LeadingBroker) -> None:
    broker = two_in_sync
    broker.append()
    broker.fetch(2, 1)
    broker.fetch(3, 0)
    broker.rig.live = {2}
    broker.fetch(3, 1)
    assert broker.controller.requests == []
    broker.rig.live = {2, 3}
    broker.fetch(3, 1)
    assert len(broker.controller.requests) == 1


def test_second_follower_joins_after_the_first(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, isr=(1,))
    broker.fetch(2, 0)
    broker.fetch(3, 0)
    assert requested(broker)[0] == [(OWN, OWN_EPOCH), (2, 5)]
    broker.controller.apply()
    broker.fetch(3, 0)
    assert requested(broker) == ([(OWN, OWN_EPOCH), (2, 5), (3, 5)], 1, 8)
    broker.controller.apply()
    assert broker.partition.isr == (1, 2, 3)


def test_isr_that_reaches_the_minimum_moves_the_high_watermark(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, isr=(1,))
    broker.append("one", acks=1)
    broker.fetch(2, 1)
    assert broker.partition.high_watermark == 0, "below the minimum"
    broker.controller.apply()
    assert broker.partition.high_watermark == 1


# Followers that leave.


def test_follower_that_lags_is_removed(in_sync: LeadingBroker) -> None:
    broker = in_sync
    broker.append()
    for _ in range(4):
        broker.pass_ms(LAG_MS / 2 - 1)
        broker.fetch(2, 2)
    assert requested(broker) == ([(OWN, OWN_EPOCH), (2, 5)], 1, 7)
    assert broker.rig.answers() == [], "until the removal is committed"
    broker.controller.apply()
    assert broker.rig.answers() == [("all", 0, 1)]
    assert broker.partition.isr == (1, 2) and broker.requests.counts.shrinks.value == 1


def test_idle_followers_stay(in_sync: LeadingBroker) -> None:
    in_sync.pass_ms(10 * LAG_MS)
    assert in_sync.controller.requests == []


def test_removal_below_the_minimum_answers_held_appends(in_sync: LeadingBroker) -> None:
    broker = in_sync
    broker.append()
    broker.pass_ms(LAG_MS + LAG_MS / 2)
    assert requested(broker)[0] == [(OWN, OWN_EPOCH)]
    broker.controller.apply()
    assert broker.rig.answers() == [("all", TOO_LATE, -1)]
    assert broker.append("later") == [("later", KafkaErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    assert broker.partition.high_watermark == 1


def test_late_check_removes_nobody(in_sync: LeadingBroker) -> None:
    """The process was stopped: its followers' fetches wait in its sockets."""
    broker = in_sync
    broker.append()
    broker.clock.stop(3 * LAG_MS)
    broker.pass_ms()
    assert broker.controller.requests == []
    broker.fetch(2, 2)
    broker.pass_ms(LAG_MS / 2)
    assert requested(broker)[0] == [(OWN, OWN_EPOCH), (2, 5)], "3 has not fetched since"


def test_check_that_is_stopped_between_two_partitions_removes_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LeadingBroker(tmp_path, led=2)
    check_lag = IsrChanges.check_lag

    def stopped(self: IsrChanges, lag_max_ms: int, now_ms: int) -> None:
        check_lag(self, lag_max_ms, now_ms)
        broker.clock.stop(3 * LAG_MS)

    monkeypatch.setattr(IsrChanges, "check_lag", stopped)
    broker.pass_ms(LAG_MS / 2)
    broker.pass_ms()
    assert broker.controller.requests == []


def test_lag_is_checked_by_one_timer_for_all_partitions_with_followers(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, led=3)
    assert broker.clock.timers == 1
    for partition in broker.partitions:
        partition.resign()
    assert broker.clock.timers == 0


# Responses of every form.


@pytest.mark.parametrize("error", [KafkaErrorCode.INELIGIBLE_REPLICA, KafkaErrorCode.OPERATION_NOT_ATTEMPTED])
def test_rejected_follower_is_proposed_again_after_a_pause(two_in_sync: LeadingBroker, error: int) -> None:
    broker = two_in_sync
    broker.fetch(3, 0)
    broker.controller.apply(p0=error)
    broker.fetch(3, 0)
    assert len(broker.controller.requests) == 1
    broker.pass_ms(1_000)
    broker.fetch(3, 0)
    assert len(broker.controller.requests) == 2 and broker.requests.counts.failed.value == 1


def test_rejected_follower_does_not_delay_the_high_watermark(two_in_sync: LeadingBroker) -> None:
    """It shuts down: it is alive, was caught up a moment ago, and will not fetch any more."""
    broker = two_in_sync
    broker.fetch(3, 0)
    broker.append()
    broker.fetch(2, 1)
    assert broker.rig.answers() == []
    broker.controller.apply(p0=KafkaErrorCode.INELIGIBLE_REPLICA)
    assert broker.rig.answers() == [("all", 0, 0)]


def test_rejected_follower_does_not_delay_another_one(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, isr=(1,))
    broker.fetch(2, 0)
    broker.controller.apply(p0=KafkaErrorCode.INELIGIBLE_REPLICA)
    broker.fetch(3, 0)
    assert requested(broker)[0] == [(OWN, OWN_EPOCH), (3, 5)]


def test_nothing_is_committed_from_the_response_with_eligible_replicas_on(tmp_path: Path) -> None:
    """The minimum that this leader knows is lower than the controller's."""
    broker = LeadingBroker(tmp_path, TopicConfig())
    broker.append("first")
    broker.fetch(2, 1)
    broker.pass_ms(LAG_MS)
    broker.fetch(2, 1)
    broker.pass_ms(LAG_MS / 2)
    assert requested(broker)[0] == [(OWN, OWN_EPOCH), (2, 5)]
    broker.controller.apply(eligible=(3,))
    broker.fetch(2, 1)
    assert broker.partition.high_watermark == 0 and broker.leader.eligible == (3,)
    broker.partition.configure(TopicConfig())
    assert broker.append("second") == [("first", TOO_LATE, -1), ("second", KafkaErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    broker.fetch(3, 1)
    broker.controller.apply()
    assert broker.partition.high_watermark == 1 and broker.leader.eligible == ()


@pytest.mark.parametrize("error", WAITING)
def test_change_of_an_old_state_waits_for_the_next_one(two_in_sync: LeadingBroker, error: int) -> None:
    broker = two_in_sync
    broker.fetch(3, 0)
    broker.append()
    broker.fetch(2, 1)
    broker.controller.apply(p0=error)
    broker.fetch(3, 0)
    assert len(broker.controller.requests) == 1 and broker.rig.answers() == []
    broker.lead(2, 9, (1, 2))
    broker.fetch(2, 1)
    assert broker.rig.answers() == [("all", 0, 0)]
    broker.fetch(3, 1)
    assert requested(broker) == ([(OWN, OWN_EPOCH), (2, 5), (3, 5)], 2, 9)


def test_change_that_waits_in_vain_is_requested_again(two_in_sync: LeadingBroker) -> None:
    """A controller that had not loaded the topic sends no other state."""
    broker = two_in_sync
    broker.fetch(3, 0)
    broker.controller.apply(p0=KafkaErrorCode.UNKNOWN_TOPIC_ID)
    broker.pass_ms(1_000)
    broker.controller.apply()
    assert broker.partition.isr == (1, 2, 3) and not broker.controller.in_flight


def test_unexpected_error_repeats_the_change(two_in_sync: LeadingBroker) -> None:
    broker = two_in_sync
    broker.fetch(3, 0)
    broker.controller.apply(p0=KafkaErrorCode.UNKNOWN_SERVER_ERROR)
    assert not broker.controller.in_flight
    broker.pass_ms(50)
    assert requested(broker) == ([(OWN, OWN_EPOCH), (2, 5), (3, 5)], 1, 7)


def test_response_after_a_new_leader_epoch_is_ignored(two_in_sync: LeadingBroker) -> None:
    broker = two_in_sync
    broker.fetch(3, 0)
    broker.lead(2, 9, (1, 2))
    broker.controller.apply()
    assert (broker.partition.isr, broker.partition.partition_epoch) == ((1, 2), 9)
    broker.fetch(3, 0)
    assert requested(broker)[1:] == (2, 9)


def test_change_that_waits_is_withdrawn_by_a_new_state(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, isr=(1, 2), led=2)
    broker.fetch(3, 0, partition=broker.partitions[1])
    broker.fetch(3, 0)
    assert list(broker.controller.asked) == [1]
    broker.lead(2, 9, (1, 2))
    broker.controller.apply()
    broker.pass_ms()
    assert not broker.controller.in_flight, "the change of partition 0 was of the state before"


def test_state_that_is_sent_again_leaves_the_change_in_flight(two_in_sync: LeadingBroker) -> None:
    """It may still be applied: the high watermark waits for the follower."""
    broker = two_in_sync
    broker.fetch(3, 0)
    broker.lead(1, 7, (1, 2))
    broker.append()
    broker.fetch(2, 1)
    assert broker.rig.answers() == []
    broker.controller.apply()
    assert broker.partition.isr == (1, 2, 3)


def test_state_that_is_older_than_a_response_does_not_replace_it(two_in_sync: LeadingBroker) -> None:
    broker = two_in_sync
    broker.fetch(3, 0)
    broker.controller.apply()
    broker.lead(1, 7, (1, 2))
    assert (broker.partition.isr, broker.partition.partition_epoch) == ((1, 2, 3), 8)
    assert tuple(broker.leader.isr) == (1, 2, 3)


@pytest.mark.parametrize("end", ["resign", "follow"])
def test_end_of_the_leadership_withdraws_the_change(two_in_sync: LeadingBroker, end: str) -> None:
    broker = two_in_sync
    broker.fetch(3, 0)
    if end == "resign":
        broker.partition.resign()
    else:
        broker.partition.follow(PartitionImage((1, 2, 3), (1, 2), 2, 2, 9))
    isr = broker.partition.isr
    broker.controller.reject(KafkaErrorCode.NOT_CONTROLLER)
    broker.pass_ms(10_000)
    assert len(broker.controller.requests) == 1 and broker.partition.isr == isr


def test_leader_without_followers_requests_nothing(two_in_sync: LeadingBroker) -> None:
    """A reassignment has removed them."""
    broker = two_in_sync
    broker.partition.lead(PartitionImage((1,), (1,), OWN, 2, 9), lambda: None)
    assert broker.append() == [("all", 0, 0)]
    broker.pass_ms(LAG_MS * 2)
    assert broker.controller.requests == []


def test_leader_of_one_replica_has_no_isr_changes(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, replace(TopicConfig(), min_insync_replicas=1))
    (_, other, _) = broker.rig.partitions
    assert isinstance(other.role, Leader) and other.role.followers == {}
    assert other.hold_at > 2**62
