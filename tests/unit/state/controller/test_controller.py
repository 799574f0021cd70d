"""The controller in single situations that are no row of a table: requests of clients, fencing, growth, directories."""

import pytest

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.slicing import finish
from kafkalite.state.controller import effects as out
from kafkalite.state.controller import events as into
from kafkalite.state.controller.completions import AWAIT
from kafkalite.state.controller.controller import Controller
from kafkalite.state.controller.known_topics import Topic
from kafkalite.state.controller.partitions.state_writes import MULTI_STATES_MAX
from kafkalite.state.controller.topics.deletion import PARTITIONS_PER_WRITE, removal
from kafkalite.state.controller.values import ControllerSettings, FeaturesNode, Snapshot, TopicNodes
from kafkalite.state.effects import SetTimer
from tests.unit.state.controller.kit import EPOCH, ID, KEY, OTHER_ID, Situation, broker, nodes, stored

TOKEN, DEADLINE_MS = object(), 5_000
NONE = KafkaErrorCode.NONE


def online() -> Situation:
    return Situation({"a": nodes(stored(1))}).quiet()


def awaited(situation: Situation, topic_id: bytes = ID, partitions: int = 1) -> Situation:
    return situation.report(into.AwaitTopic(TOKEN, "a", topic_id, partitions, DEADLINE_MS))


def completions(situation: Situation) -> list[int]:
    return [each.error for each in situation.effects if isinstance(each, out.Completion) and each.token is TOKEN]


def fails(situation: Situation, error: int) -> Situation:
    """Broker 1 rejects its whole request."""
    send = situation.requests.pop(1)
    assert isinstance(send, out.SendLeaderAndIsr)
    return situation.report(into.LeaderAndIsrAnswered(send.request_id, error, {}))


# CreateTopics and DeleteTopics.


def test_created_topic_is_completed_when_the_image_of_the_controller_has_its_leader() -> None:
    situation = awaited(Situation({"a": nodes()}).quiet())
    assert completions(situation) == []
    assert completions(situation.written()) == []
    assert completions(situation.answer(2)) == [NONE]


def test_created_topic_is_not_completed_while_its_broker_is_not_alive() -> None:
    situation = awaited(Situation({"a": nodes()}, alive=()).quiet())
    (timer,) = (each for each in situation.effects if isinstance(each, SetTimer) and each.name[0] == AWAIT)
    assert timer.at_ms == DEADLINE_MS
    assert completions(situation.report(into.TimerExpired(timer.name))) == [KafkaErrorCode.REQUEST_TIMED_OUT]


def test_created_topic_that_is_deleted_meanwhile_fails() -> None:
    situation = awaited(Situation({"a": nodes()}, alive=()).quiet()).requested("a").quiet()
    assert completions(situation.read(nodes())) == [KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_deletion_is_completed_when_only_brokers_that_are_not_alive_have_logs() -> None:
    situation = Situation({"a": nodes(stored(-1))}, alive=()).quiet()
    situation.report(into.AwaitDeletion(TOKEN, "a", DEADLINE_MS)).requested("a")
    assert completions(situation.read(nodes(stored(-1)))) == [NONE]


# Fencing.


def test_controller_that_was_replaced_resigns_and_fails_requests_of_clients() -> None:
    situation = awaited(Situation({"a": nodes()}).quiet()).report(into.ControllerMoved("epoch 8"))
    assert completions(situation) == [KafkaErrorCode.NOT_CONTROLLER]
    assert situation.effects[-1] == out.Resign("epoch 8")
    assert situation.alive().effects == [], "it does nothing afterwards"


def test_state_of_a_later_controller_makes_it_resign() -> None:
    later = stored(1, 5, 3)
    later = later._replace(state=later.state._replace(controller_epoch=EPOCH + 1))
    assert isinstance(online().read(nodes(later)).effects[-1], out.Resign)


def test_broker_that_knows_a_later_controller_leads_to_one_check_of_the_epoch() -> None:
    situation = online().report(into.LogDirsFailed({"event": 1}))
    fails(situation, KafkaErrorCode.STALE_CONTROLLER_EPOCH)
    assert situation.writes[-1].operations == (), "the runtime adds the check of the controller epoch"
    checks = len(situation.writes)
    situation.report(into.TimerExpired(("retry", 1)))
    fails(situation, KafkaErrorCode.STALE_CONTROLLER_EPOCH)
    assert len(situation.writes) == checks


# Brokers and log directories.


def test_restarted_broker_gets_everything_again_in_a_new_leader_epoch() -> None:
    situation = online().alive(1, epoch=9)
    assert out.Disconnect(1) in situation.effects and out.Connect(broker(1, 9)) in situation.effects
    send = situation.requests[1]
    assert isinstance(send, out.SendUpdateMetadata) and send.full and send.broker_epoch == 9
    assert situation.summary[0] == "SetState leader 1 epoch 1"


def test_leader_that_restarted_together_with_the_controller_gets_a_new_leader_epoch() -> None:
    """Its registration is newer than the state, which the former controller has written."""
    restarted = Situation({"a": nodes(stored(1, leader_epoch=4, version=4, zxid=0))}, alive=(1,))
    assert "SetState leader 1 epoch 5" in restarted.summary
    assert "SetState leader 1 epoch 5" not in online().summary


def test_restart_during_a_write_whose_result_is_unknown_is_found_by_the_read_state() -> None:
    reading = online().alive(1, epoch=9).rejected().quiet().alive(1, epoch=11).quiet()
    assert reading.state_read(stored(1, 1, 1, zxid=10)).summary[0] == "SetState leader 1 epoch 2"


def test_response_to_a_request_of_an_earlier_registration_has_no_effect() -> None:
    situation = online().report(into.LogDirsFailed({"event": 1}))
    before = situation.requests[1]
    situation.alive(1, epoch=9)
    situation.report(into.LeaderAndIsrAnswered(before.request_id, NONE, {KEY: KafkaErrorCode.KAFKA_STORAGE_ERROR}))
    assert situation.effects == []


def test_broker_without_the_finalized_features_is_ignored() -> None:
    machine = Controller(ControllerSettings(2, EPOCH))
    features = FeaturesNode(True, {"metadata.version": 3}, 0)
    supports = broker(2)._replace(features={"metadata.version": (1, 4)})
    effects = machine.handle(into.SnapshotRead(Snapshot((broker(1), supports), {}, frozenset(), features)), 0)
    assert [each.broker.broker_id for each in effects if isinstance(each, out.Connect)] == [2]


def test_failed_log_directory_takes_the_leader_and_a_repaired_one_returns_it() -> None:
    situation = online().report(into.LogDirsFailed({"event": 1}))
    assert out.DeleteNotifications(log_dir_events=("event",)) in situation.effects
    situation.answer(1, KafkaErrorCode.KAFKA_STORAGE_ERROR)
    assert situation.summary[0] == "SetState leader -1 epoch 1"
    situation.written(1).quiet()
    assert situation.machine.counts().offline_partitions == 1
    situation.report(into.LogDirsFailed({"other": 1})).answer(1)
    assert situation.summary[0] == "SetState leader 1 epoch 2"


def test_log_of_a_deleted_topic_is_deleted_where_its_broker_has_reported_the_replica_as_offline() -> None:
    """Its files may be lost: then the broker has nothing to delete, and the deletion must not wait for them."""
    situation = Situation({"a": nodes(stored(1))}, alive=(1,), deletions=frozenset({"a"}))
    situation.answer_until(1, out.SendLeaderAndIsr).answer(1, KafkaErrorCode.KAFKA_STORAGE_ERROR)
    situation.answer_until(1, out.SendStopReplica)
    stop = situation.requests[1]
    assert isinstance(stop, out.SendStopReplica) and stop.topics[0].partitions[0].delete


# Topics.


def grown(states: int = 1) -> TopicNodes:
    """The topic has a second partition, on broker 2."""
    return TopicNodes(ID, 1, {0: (1,), 1: (2,)}, {}, {}, {0: stored(1)}, frozenset(range(states)), 10)


def test_added_partition_gets_its_first_state() -> None:
    assert online().read(grown()).summary == ["CheckTopic", "CreateState leader 2 epoch 0"]


def test_partition_whose_creation_was_interrupted_gets_its_state_below_the_existing_node() -> None:
    operations = online().read(grown(states=2)).writes[-1].operations
    (creation,) = (each for each in operations if isinstance(each, out.CreateState))
    assert creation.partition == TopicPartition("a", 1) and not creation.with_parent


def test_topic_whose_creation_was_interrupted_gets_the_node_above_its_partitions() -> None:
    situation = Situation({"a": TopicNodes(ID, 0, {0: (1,)}, created_zxid=10)})
    assert situation.summary[:3] == ["CheckTopic", "CreatePartitionsNode", "CreateState leader 1 epoch 0"]


def test_topic_that_was_deleted_and_created_again_by_hand_is_another_one() -> None:
    situation = online().read(nodes(topic_id=OTHER_ID, created=99))
    assert "its znodes were deleted by others, its logs are kept" in situation.summary
    assert "CreateState leader 1 epoch 0" in situation.summary


def test_deletions_are_refused_where_the_configuration_does_not_allow_them() -> None:
    machine = Controller(ControllerSettings(2, EPOCH, delete_topic_enable=False))
    topics = {"a": nodes(stored(1))}
    snapshot = Snapshot((broker(1), broker(2)), topics, frozenset({"a"}), FeaturesNode(True, {}, 0))
    writes = [each for each in machine.handle(into.SnapshotRead(snapshot), 0) if isinstance(each, out.Write)]
    assert [each.operations for each in writes] == [(out.DeleteDeletion("a"),)]


@pytest.mark.parametrize("version", [None, 4])
def test_features_are_enabled_before_anything_else(version: int | None) -> None:
    features = None if version is None else FeaturesNode(False, {}, version)
    effects = Controller(ControllerSettings(2, EPOCH)).handle(
        into.SnapshotRead(Snapshot((broker(2),), {}, frozenset(), features)), 0
    )
    assert next(each for each in effects if isinstance(each, out.Write)).operations == (out.EnableFeatures(version),)


def test_requests_of_administrators_at_the_start_are_refused_or_reported() -> None:
    snapshot = Snapshot(
        (broker(1), broker(2)), {"a": nodes(stored(-1))}, frozenset(), FeaturesNode(True, {}, 0),
        reassignment={KEY: (2,), TopicPartition("b", 0): (1,)}, preferred_election=(KEY, TopicPartition("b", 0)),
    )  # fmt: skip
    effects = Controller(ControllerSettings(2, EPOCH)).handle(into.SnapshotRead(snapshot), 0)
    texts = [each.text for each in effects if isinstance(each, out.Log)]
    assert texts[:3] == [
        "reassignment of a-0 from [1] to [2] refused: replicas cannot be moved yet",
        "reassignment of b-0 refused: the partition does not exist",
        "preferred replica election of b-0 refused: the partition does not exist",
    ]
    assert out.DeleteNotifications(reassignment=True, preferred_election=True) in effects


def test_transactions_of_states_and_of_deletions_are_bounded() -> None:
    """One transaction is one step of the broker that serves the tree."""
    count = 1_000
    replicas = dict.fromkeys(range(count), (1,))
    situation = Situation({"a": TopicNodes(ID, 0, replicas, created_zxid=10)})
    writes = [each for each in situation.effects if isinstance(each, out.Write)]
    sizes = [sum(isinstance(one, out.CreateState) for one in write.operations) for write in writes]
    assert sum(sizes) == count and max(sizes) <= MULTI_STATES_MAX
    states = dict.fromkeys(range(count), stored(1))
    topic, read = Topic("a"), TopicNodes(ID, 0, replicas, {}, {}, states, frozenset(range(count)), 10)
    assert max(map(len, finish(removal(topic, read)))) <= 1 + 2 * PARTITIONS_PER_WRITE


def test_brokers_learn_of_all_partitions_of_a_new_topic_at_once() -> None:
    """A client that sees some of them would choose the partition of a key among these."""
    count = 2 * MULTI_STATES_MAX + 50
    situation = Situation({"a": TopicNodes(ID, 0, dict.fromkeys(range(count), (1,)), created_zxid=10)}).quiet()
    writes = [each for each in situation.writes if any(isinstance(one, out.CreateState) for one in each.operations)]
    assert len(writes) == 3
    for write in writes:
        situation.report(into.WriteDone(write.write_id, (0,) * len(write.operations))).quiet()
        situation.alive(1, 3, epoch=1).quiet()  # a broker that is new gets all metadata
        situation.alive(1).quiet()
    sent = [each for each in situation.sent if isinstance(each, out.SendUpdateMetadata) and each.topics]
    partitions = [sum(len(topic.partitions) for topic in each.topics) for each in sent]
    assert {each.broker_id for each in sent} >= {1, 2} and set(partitions) == {count}


def test_a_topic_whose_first_states_are_rejected_is_sent_once_none_is_written() -> None:
    situation = Situation({"a": TopicNodes(ID, 0, dict.fromkeys(range(MULTI_STATES_MAX + 1), (1,)), created_zxid=10)})
    first, second = [
        each for each in situation.writes if any(isinstance(one, out.CreateState) for one in each.operations)
    ]
    situation.quiet().report(into.WriteRejected(second.write_id, 0))
    situation.report(into.WriteDone(first.write_id, (0,) * len(first.operations))).quiet()
    sent = [each for each in situation.sent if isinstance(each, out.SendUpdateMetadata) and each.topics]
    created = sum(isinstance(one, out.CreateState) for one in first.operations)
    assert [sum(len(topic.partitions) for topic in each.topics) for each in sent] == [created] * 2


def test_a_broker_that_starts_while_a_topic_grows_learns_of_its_old_partitions() -> None:
    old, count = 3, MULTI_STATES_MAX + 50
    replicas = dict.fromkeys(range(count), (1,))
    states = dict.fromkeys(range(old), stored(1))
    situation = Situation({"a": TopicNodes(ID, 0, replicas, {}, {}, states, frozenset(range(old)), 10)}).quiet()
    first, second = [
        each for each in situation.writes if any(isinstance(one, out.CreateState) for one in each.operations)
    ]
    situation.report(into.WriteDone(first.write_id, (0,) * len(first.operations))).quiet()
    situation.alive(1, 3).quiet()
    situation.report(into.WriteDone(second.write_id, (0,) * len(second.operations))).quiet()
    sent = [each for each in situation.sent if isinstance(each, out.SendUpdateMetadata) and each.broker_id == 3]
    known = [sorted(one.partition for topic in each.topics for one in topic.partitions) for each in sent]
    assert known == [[*range(old)], [*range(old, count)]]
