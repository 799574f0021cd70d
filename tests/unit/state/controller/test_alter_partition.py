"""Leaders change the ISRs of their partitions: what the controller accepts, writes, answers and sends."""

import pytest

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.model import TopicPartition
from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.values import LeaderAndIsr, PartitionOutcome, StoredState, TopicNodes
from tests.unit.state.controller.kit import EPOCH, ID, KEY, OTHER_ID, WRITTEN, Situation

KEPT = LeaderAndIsr(1, 4, (1,), EPOCH, isr_epochs=(1,))


def topic(isr: tuple[int, ...] = (1, 3), *, version: int = 6, recovering: bool = False) -> TopicNodes:
    """A partition with the replicas 1, 3 and 4, led by broker 1 in leader epoch 4."""
    state = StoredState(LeaderAndIsr(1, 4, isr, EPOCH - 1, recovering), version, WRITTEN)
    return TopicNodes(ID, 0, {0: (1, 3, 4)}, {}, {}, {0: state}, frozenset({0}), 10)


def running(isr: tuple[int, ...] = (1, 3), *, recovering: bool = False) -> Situation:
    return Situation({"a": topic(isr, recovering=recovering)}, alive=(1, 3, 4)).quiet()


def outcome(situation: Situation, token: object) -> PartitionOutcome:
    ((error, (found,)),) = situation.completed(token)
    assert error == 0
    return found


def test_change_is_written_with_its_version_answered_and_sent_as_metadata_only() -> None:
    situation = running().alter((1,), leader_epoch=4, partition_epoch=6)
    assert situation.writes[-1].operations == (out.SetState(KEY, KEPT, 6),)
    assert not situation.completed((1,)), "the answer follows the write"
    situation.written(7)
    assert outcome(situation, (1,)) == PartitionOutcome(KEY, 0, KEPT, 7)
    sent = [effect for effect in situation.effects if isinstance(effect, out.SendUpdateMetadata)]
    assert {each.topics[0].partitions[0].isr for each in sent} == {(1,)} and len(sent) == 4
    situation.quiet()
    assert not [effect for effect in situation.effects if isinstance(effect, out.SendLeaderAndIsr)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"leader_epoch": 3}, Error.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 5}, Error.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 5}, Error.INVALID_UPDATE_VERSION),
        ({"isr": ()}, Error.INVALID_REQUEST),
        ({"isr": (3,)}, Error.INVALID_REQUEST),
        ({"isr": (1, 1)}, Error.INVALID_REQUEST),
        ({"isr": (1, 2)}, Error.INVALID_REQUEST),
        ({"sender": 3}, Error.INVALID_REQUEST),
        ({"recovering": True}, Error.INVALID_REQUEST),
        ({"isr": (1, 3, 4), "member_epoch": 9}, Error.INELIGIBLE_REPLICA),
        ({"topic_id": OTHER_ID}, Error.UNKNOWN_TOPIC_ID),
        ({"partition": 1}, Error.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_invalid_change_is_refused(change: dict[str, object], error: int) -> None:
    request: dict[str, object] = {"isr": (1,), "leader_epoch": 4, "partition_epoch": 6} | change
    situation = running().alter(**request)  # type: ignore[arg-type]
    assert outcome(situation, request["isr"]).error == error
    assert not situation.writes


def test_replica_that_is_not_alive_cannot_join() -> None:
    situation = Situation({"a": topic((1,))}, alive=(1, 3)).quiet().alter((1, 4), leader_epoch=4, partition_epoch=6)
    assert outcome(situation, (1, 4)).error == Error.INELIGIBLE_REPLICA


def test_registration_of_a_sender_must_be_the_present_one() -> None:
    situation = running().alter((1,), sender_epoch=0, leader_epoch=4, partition_epoch=6)
    assert situation.completed((1,)) == [(Error.STALE_BROKER_EPOCH, ())]


def test_repeated_change_finds_its_own_result() -> None:
    situation = running().alter((1,), leader_epoch=4, partition_epoch=6).written(7)
    situation.alter((1,), leader_epoch=4, partition_epoch=6)
    assert outcome(situation, (1,)) == PartitionOutcome(KEY, 0, KEPT, 7)
    assert len(situation.writes) == 1


def test_change_during_a_write_waits_for_it() -> None:
    situation = running().alter((1,), leader_epoch=4, partition_epoch=6)
    situation.alter((1, 3, 4), leader_epoch=4, partition_epoch=6)
    assert not situation.completed((1, 3, 4))
    situation.written(7)
    assert outcome(situation, (1, 3, 4)).error == Error.INVALID_UPDATE_VERSION


def test_change_during_an_election_is_fenced_by_its_epoch() -> None:
    situation = running().alive(1, 4).alter((1, 3, 4), leader_epoch=4, partition_epoch=6)
    assert not situation.completed((1, 3, 4))
    assert outcome(situation.written(7), (1, 3, 4)).error == Error.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(("found", "error"), [((1,), Error.NONE), ((1, 3), Error.INVALID_UPDATE_VERSION)])
def test_change_whose_write_was_rejected_is_decided_by_the_state_that_is_read(
    found: tuple[int, ...], error: int
) -> None:
    situation = running().alter((1,), leader_epoch=4, partition_epoch=6).rejected()
    situation.state_read(topic(found, version=7).states[0])
    assert outcome(situation, (1,)).error == error


def test_change_whose_write_had_no_effect_is_written_again() -> None:
    situation = running().alter((1,), leader_epoch=4, partition_epoch=6).rejected()
    situation.state_read(topic().states[0])
    assert len(situation.writes) == 2 and situation.writes[-1].operations == (out.SetState(KEY, KEPT, 6),)


def test_leader_that_recovers_is_marked_as_recovered() -> None:
    situation = running((1,), recovering=True).alter((1,), leader_epoch=4, partition_epoch=6)
    assert situation.writes[-1].operations == (out.SetState(KEY, KEPT, 6),)
    refused = running((1,), recovering=True).alter((1, 3), leader_epoch=4, partition_epoch=6, recovering=True)
    assert outcome(refused, (1, 3)).error == Error.INVALID_REQUEST


def test_leader_is_sent_as_such_while_its_change_is_written() -> None:
    situation = running().alter((1,), leader_epoch=4, partition_epoch=6)
    situation.report(into.LogDirsFailed({"event": 1})).quiet()
    sent = [each for each in situation.sent if isinstance(each, out.SendLeaderAndIsr) and each.broker_id == 1]
    assert sent[-1].topics[0].partitions[0].leader == 1


def test_restart_of_a_member_during_a_change_removes_it_after_the_write() -> None:
    situation = running((1,)).alter((1, 3), leader_epoch=4, partition_epoch=6)
    situation.report(into.BrokersChanged(situation.registrations({1: 1, 3: 2, 4: 1}))).quiet().written(7)
    assert situation.writes[-1].operations == (out.SetState(KEY, LeaderAndIsr(1, 5, (1,), EPOCH, isr_epochs=(1,)), 7),)


def test_changes_of_a_request_are_one_transaction() -> None:
    states = {index: topic().states[0] for index in range(5)}
    nodes = TopicNodes(ID, 0, dict.fromkeys(range(5), (1, 3, 4)), {}, {}, states, frozenset(range(5)), 10)
    situation = Situation({"a": nodes}, alive=(1, 3, 4)).quiet()
    changes = tuple(into.RequestedIsr(ID, index, 4, 6, ((1, -1),)) for index in range(5))
    situation.report(into.AlterPartitions("all", 1, 1, changes))
    assert len(situation.writes) == 1
    ((error, outcomes),) = situation.written(7).completed("all")
    assert error == 0 and [each.partition for each in outcomes] == [TopicPartition("a", each) for each in range(5)]


def test_requests_fail_when_another_controller_is_elected() -> None:
    situation = running().alter((1,), leader_epoch=4, partition_epoch=6)
    situation.report(into.ControllerMoved("another"))
    assert situation.completed((1,)) == [(Error.NOT_CONTROLLER, ())]
