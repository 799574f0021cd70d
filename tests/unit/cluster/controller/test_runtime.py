"""The runtime of the controller: what it reads, writes and sends for a machine, and when a term ends."""

from collections.abc import Callable, Iterable
from typing import Any

from kafkalite.cluster.controller.runtime import ControllerRuntime
from kafkalite.coordination import znodes
from kafkalite.coordination.znodes import brokers, controller
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.leader_and_isr import LeaderAndIsrPartitionError, LeaderAndIsrResponse
from kafkalite.protocol.messages.stop_replica import StopReplicaResponse
from kafkalite.protocol.messages.update_metadata import UpdateMetadataResponse
from kafkalite.slicing import Slicer
from kafkalite.state.controller import effects, events
from kafkalite.state.controller.values import (
    ControllerSettings,
    FeaturesNode,
    InvalidNode,
    LeaderAndIsr,
    StoredState,
)
from kafkalite.state.effects import CancelTimer, SetTimer
from tests.kit.costly_clock import CostlyClock
from tests.unit.cluster.controller.kit import TOPIC_ID, NotingHost, NotingMachine, Service

Script = dict[type, Callable[[Any], Iterable[effects.Effect]]]
STATE = LeaderAndIsr(1, 0, (1,), 1)


class Node:
    """A broker that takes part in elections, with the machines of its terms. `clock`: of its slices."""

    def __init__(
        self, service: Service, script: Script | None = None, broker_id: int = 1, clock: CostlyClock | None = None
    ) -> None:
        self.host, self.session = NotingHost(broker_id), service.connect()
        self.script: Script = script if script is not None else {}
        self.machines: list[NotingMachine] = []
        slicer = Slicer(clock or service.clock, lambda _done, error: self.raised.append(error))
        self.raised: list[BaseException] = []  # by callbacks of the slicer
        self.runtime = ControllerRuntime(self.host, self.session, service.clock, broker_id, slicer, self._machine)
        self.runtime.start()

    def _machine(self, settings: ControllerSettings) -> NotingMachine:
        self.machines.append(NotingMachine(settings, self.script))
        return self.machines[-1]

    @property
    def machine(self) -> NotingMachine:
        return self.machines[-1]


def on(kind: type, *wanted: effects.Effect) -> Script:
    return {kind: lambda _event: wanted}


def test_the_elected_broker_reads_the_whole_tree() -> None:
    service = Service()
    service.register(1)
    service.topic("orders", 2)
    service.write(znodes.state_path("orders", 0), znodes.encode_state(znodes.PartitionState(*STATE)))
    service.write(znodes.state_path("orders", 1), b"garbage")
    service.write(znodes.topic_path("broken"), b"[]")
    service.write(controller.delete_topic_path("gone"), b"")
    service.write(brokers.FEATURE, brokers.encode_features(brokers.FeatureNode(True, {"f": 2})))
    service.write(controller.REASSIGN_PARTITIONS, controller.encode_reassignment({TopicPartition("orders", 0): (2,)}))
    service.write(controller.PREFERRED_ELECTION, controller.encode_partitions([TopicPartition("orders", 1)]))
    service.write(f"{controller.LOG_DIR_EVENT_PREFIX}0", controller.encode_log_dir_failure(1))
    node = Node(service)
    assert node.runtime.active and node.runtime.epoch == 1
    (event,) = node.machine.of(events.SnapshotRead)
    snapshot = event.snapshot
    assert [broker.broker_id for broker in snapshot.brokers] == [1] and snapshot.brokers[0].epoch > 0
    orders = snapshot.topics["orders"]
    assert (orders.topic_id, orders.replicas, orders.partition_nodes) == (TOPIC_ID, {0: (1,), 1: (1,)}, {0, 1})
    state = orders.states[0]
    assert isinstance(state, StoredState) and state[:2] == (STATE, 0) and isinstance(orders.states[1], InvalidNode)
    assert state.zxid > snapshot.brokers[0].epoch, "it was written after the registration"
    assert isinstance(snapshot.topics["broken"], InvalidNode)
    assert snapshot.deletions == {"gone"} and snapshot.features == FeaturesNode(True, {"f": 2}, 0)
    assert snapshot.reassignment == {TopicPartition("orders", 0): (2,)}
    assert snapshot.preferred_election == (TopicPartition("orders", 1),)
    assert snapshot.log_dir_events == ("log_dir_event_0",) and snapshot.isr_changes == ()


def test_watches_report_every_kind_of_change_again_and_again() -> None:
    service = Service()
    service.topic("orders")
    node = Node(service, {events.TopicsChanged: lambda event: [effects.ReadTopic(name) for name in event.topics]})
    for number in range(2):
        machine = node.machine
        machine.events.clear()
        service.register(1)
        service.topic(f"new{number}")
        service.topic("orders", 2 + number)
        service.write(controller.delete_topic_path(f"gone{number}"), b"")
        service.write(f"{controller.LOG_DIR_EVENT_PREFIX}{number}", controller.encode_log_dir_failure(1))
        assert [broker.broker_id for broker in machine.of(events.BrokersChanged)[-1].brokers] == [1]
        assert f"new{number}" in machine.of(events.TopicsChanged)[-1].topics
        read = {event.topic: event.nodes for event in machine.of(events.TopicRead)}
        assert len(read["orders"].replicas) == 2 + number and read[f"new{number}"].states == {}
        assert f"gone{number}" in machine.of(events.DeletionsChanged)[-1].topics
        assert machine.of(events.LogDirsFailed)[-1].brokers[f"log_dir_event_{number}"] == 1


def reading(service: Service, *wanted: effects.Effect) -> Node:
    """A controller that has read the node of `orders`, but not yet its partitions."""
    node = Node(service, on(events.DeletionsChanged, *wanted))
    node.session.held = {}
    service.topic("orders", 2)
    assert list(node.session.held) == [f"{znodes.topic_path('orders')}/partitions"]
    return node


def test_the_read_of_a_topic_begins_again_if_its_node_changes_meanwhile() -> None:
    service = Service()
    service.topic("orders")
    node = reading(service)
    service.topic("orders", 3)
    node.session.release()
    assert not node.machine.of(events.TopicRead), "two partitions are not the current assignment"
    node.session.release()
    (event,) = node.machine.of(events.TopicRead)
    assert (event.nodes.version, len(event.nodes.replicas)) == (2, 3)


def test_the_read_of_a_topic_begins_again_if_its_node_is_deleted_meanwhile() -> None:
    service = Service()
    service.topic("orders")
    node = reading(service)
    service.delete(znodes.topic_path("orders"))
    node.session.release()
    assert node.machine.of(events.TopicRead) == [events.TopicRead("orders", None)]


def test_a_topic_that_is_being_read_is_read_again_on_request_and_reported_once() -> None:
    service = Service()
    service.topic("orders")
    node = reading(service, effects.ReadTopic("orders"), effects.ReadTopic("orders"))
    node.runtime.submit(events.AwaitDeletion(None, "orders", 0), lambda _error: None)
    node.script.update(on(events.AwaitDeletion, effects.ReadTopic("orders")))
    node.runtime.submit(events.AwaitDeletion(None, "orders", 0), lambda _error: None)
    node.session.release()
    assert not node.machine.of(events.TopicRead)
    node.session.release()
    assert len(node.machine.of(events.TopicRead)) == 1 and not node.session.held


def test_the_snapshot_has_no_topic_that_changed_while_it_was_read() -> None:
    service = Service()
    service.topic("orders")
    node = Node(service, broker_id=1)
    other = Node(service, broker_id=2)
    other.session.held = {}
    service.expire(node.session)
    while f"{znodes.topic_path('orders')}/partitions" not in other.session.held:
        other.session.release()
    service.topic("orders", 2)
    other.session.release()
    assert not other.machine.events, "the topic is read again"
    other.session.release()
    (event,) = other.machine.events
    assert len(event.snapshot.topics["orders"].replicas) == 2


def test_a_topic_that_was_created_again_has_another_zxid() -> None:
    service = Service()
    service.topic("orders")
    node = Node(service, {events.TopicsChanged: lambda event: [effects.ReadTopic(name) for name in event.topics]})
    first = node.machine.of(events.SnapshotRead)[0].snapshot.topics["orders"]
    service.delete(znodes.topic_path("orders"))
    service.topic("orders")
    second = node.machine.of(events.TopicRead)[-1].nodes
    assert second._replace(created_zxid=first.created_zxid) == first and second.created_zxid > first.created_zxid > 0


def test_a_state_is_created_only_for_the_version_of_the_topic_that_was_read() -> None:
    service = Service()
    service.topic("orders")
    operations = effects.CheckTopic("orders", 0), effects.CreatePartitionsNode("orders")
    node = Node(service, on(events.DeletionsChanged, effects.Write(7, operations)))
    service.topic("orders", 2)
    service.write(controller.delete_topic_path("x"), b"")
    assert node.machine.of(events.WriteRejected) == [events.WriteRejected(7, 0)] and node.runtime.active
    assert not service.exists(f"{znodes.topic_path('orders')}/partitions")
    current = effects.Write(8, (effects.CheckTopic("orders", 1), operations[1]))
    node.script.update(on(events.DeletionsChanged, current))
    service.write(controller.delete_topic_path("y"), b"")
    assert node.machine.of(events.WriteDone) == [events.WriteDone(8, (0, 0))]


def test_foreign_and_invalid_registrations_are_left_out() -> None:
    service = Service()
    service.register(1)
    service.write(f"{znodes.BROKER_IDS}/02", b"{}")
    service.write(f"{znodes.BROKER_IDS}/broker", b"{}")
    service.write(f"{znodes.BROKER_IDS}/3", b'{"version":5}')
    (event,) = Node(service).machine.of(events.SnapshotRead)
    assert [broker.broker_id for broker in event.snapshot.brokers] == [1]


def test_a_write_is_one_fenced_transaction() -> None:
    service = Service()
    service.topic("orders")
    key = TopicPartition("orders", 0)
    write = effects.Write(
        7, (effects.CreatePartitionsNode("orders"), effects.CreateState(key, STATE, with_parent=True))
    )
    node = Node(service, on(events.SnapshotRead, write))
    assert node.machine.of(events.WriteDone) == [events.WriteDone(7, (0, 0))]
    assert znodes.decode_state("", service.data(znodes.state_path("orders", 0))) == znodes.PartitionState(*STATE)
    node.script.update(on(events.TimerExpired, effects.Write(8, (effects.SetState(key, STATE, 0),))))
    node.machine.events.clear()
    node.script.update(on(events.DeletionsChanged, SetTimer(("again", None), 0)))
    service.write(controller.delete_topic_path("x"), b"")
    service.clock.advance(1)
    assert node.machine.of(events.WriteDone) == [events.WriteDone(8, (1,))]


def test_a_rejected_write_names_the_operation_of_the_machine() -> None:
    service = Service()
    service.topic("orders")
    keys = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    operations = (
        effects.CreatePartitionsNode("orders"),
        effects.CreateState(keys[0], STATE, with_parent=True),
        effects.CreateState(keys[1], STATE, with_parent=False),
    )
    node = Node(service, on(events.SnapshotRead, effects.Write(7, operations)))
    assert node.machine.of(events.WriteRejected) == [events.WriteRejected(7, 2)]
    assert not service.exists(f"{znodes.topic_path('orders')}/partitions"), "all or nothing"


def test_a_write_without_a_response_has_failed() -> None:
    service = Service()
    service.topic("orders")
    write = effects.Write(7, (effects.CreatePartitionsNode("orders"),))
    node = Node(service, on(events.DeletionsChanged, write))
    node.session.lose = 1
    service.write(controller.delete_topic_path("x"), b"")
    (event,) = node.machine.of(events.WriteFailed)
    assert event.write_id == 7 and node.runtime.active


def test_the_writes_of_an_earlier_controller_have_no_effect_and_end_its_term() -> None:
    """The zombie: another controller was elected, and this one does not know it."""
    service = Service()
    service.topic("orders")
    write = effects.Write(7, (effects.CreatePartitionsNode("orders"),))
    node = Node(service, on(events.DeletionsChanged, write))
    service.write(controller.CONTROLLER_EPOCH, b"2")  # as its election does; `/controller` still is the zombie's here
    service.write(controller.delete_topic_path("x"), b"")
    assert not node.machines[0].of(events.WriteDone) and node.machines[0] is not node.machine
    assert not service.exists(f"{znodes.topic_path('orders')}/partitions")
    assert len(node.machines) == 2 and node.runtime.epoch == 3, "it has joined the next election"


def test_a_topic_id_is_drawn_for_a_topic_without_one() -> None:
    service = Service()
    service.write(znodes.topic_path("old"), znodes.encode_topic(znodes.TopicNode(None, {0: (1,)})))
    wanted = effects.SetTopicId("old", None, {0: (1,)}, {}, {}, 0)
    node = Node(service, on(events.SnapshotRead, effects.Write(1, (wanted,))))
    assert node.machine.of(events.WriteDone) == [events.WriteDone(1, (1,))]
    assert znodes.decode_topic("", service.data(znodes.topic_path("old"))).topic_id == TOPIC_ID


def test_all_operations_of_a_deletion_and_the_features() -> None:
    service = Service()
    service.topic("orders")
    for path in (znodes.state_path("orders", 0), znodes.topic_config_path("orders")):
        service.write(path, b"")
    service.write(controller.delete_topic_path("orders"), b"")
    key = TopicPartition("orders", 0)
    write = effects.Write(
        1,
        (
            effects.CheckDeletion("orders"),
            effects.DeleteState(key),
            effects.DeletePartitionNode(key),
            effects.DeletePartitionsNode("orders"),
            effects.DeleteTopicNode("orders", 0),
            effects.DeleteTopicConfig("orders"),
            effects.DeleteDeletion("orders"),
            effects.EnableFeatures(None),
        ),
    )
    node = Node(service, on(events.SnapshotRead, write))
    assert node.machine.of(events.WriteDone)
    for path in (znodes.topic_path("orders"), znodes.topic_config_path("orders")):
        assert not service.exists(path)
    assert brokers.decode_features(service.data(brokers.FEATURE)) == brokers.FeatureNode(True, {})


def test_notifications_are_deleted_each_by_itself() -> None:
    service = Service()
    names = ("log_dir_event_0", "log_dir_event_1")
    service.write(f"{controller.LOG_DIR_EVENTS}/{names[1]}", controller.encode_log_dir_failure(1))
    service.write(controller.REASSIGN_PARTITIONS, controller.encode_reassignment({}))
    Node(service, on(events.SnapshotRead, effects.DeleteNotifications(names, reassignment=True)))
    assert not service.exists(f"{controller.LOG_DIR_EVENTS}/{names[1]}"), "the missing one before it does not matter"
    assert not service.exists(controller.REASSIGN_PARTITIONS)


def test_requests_carry_the_term_and_their_responses_are_events() -> None:
    service = Service()
    service.register(2)
    node = Node(service)
    (broker,) = node.machine.of(events.SnapshotRead)[0].snapshot.brokers
    leadership = effects.PartitionLeadership(0, 1, 2, 3, (2,), 4, (2,), (), (), True, 0)
    metadata = effects.PartitionMetadata(0, 1, 2, 3, (2,), 4, (2,), ())
    topics = (effects.TopicLeadership("orders", TOPIC_ID, (leadership,)),)
    sends: tuple[effects.Effect, ...] = (
        effects.Connect(broker),
        effects.SendUpdateMetadata(
            1, 2, broker.epoch, True, (broker,), (effects.TopicMetadata("orders", TOPIC_ID, (metadata,)),)
        ),
        effects.SendLeaderAndIsr(2, 2, broker.epoch, False, topics, (broker,)),
        effects.SendStopReplica(
            3, 2, broker.epoch, (effects.StoppedTopic("orders", (effects.StoppedReplica(0, 5, delete=True),)),)
        ),
        effects.SendStopReplica(4, 2, broker.epoch, ()),
    )
    node.script.update(on(events.DeletionsChanged, *sends))
    service.write(controller.delete_topic_path("x"), b"")
    (peer,) = node.host.peers
    requests = [call[0] for call in peer.calls]
    assert {(each.controller_id, each.controller_epoch, each.broker_epoch) for each in requests} == {
        (1, 1, broker.epoch)
    }
    assert [requests[0].type, requests[1].type] == [2, 1]
    (live,) = requests[0].live_brokers
    assert (live.id, live.endpoints[0].host, live.endpoints[0].listener) == (2, "host2", "PLAINTEXT")
    state = requests[1].topic_states[0].partition_states[0]
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.is_new) == (2, 3, 4, True)
    assert requests[1].live_leaders[0].host_name == "host2"
    assert requests[2].topic_states[0].partition_states[0].delete_partition
    answer = [call[1] for call in peer.calls]
    answer[0](UpdateMetadataResponse(error_code=0))
    error = LeaderAndIsrPartitionError(partition_index=0, error_code=56)
    topic = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=TOPIC_ID, partition_errors=[error])
    answer[1](LeaderAndIsrResponse(error_code=0, topics=[topic]))
    answer[2](StopReplicaResponse(error_code=77, partition_errors=[]))
    peer.calls[3][2]("no connection")
    assert node.machine.of(events.UpdateMetadataAnswered) == [events.UpdateMetadataAnswered(1, 0)]
    assert node.machine.of(events.LeaderAndIsrAnswered) == [
        events.LeaderAndIsrAnswered(2, 0, {TopicPartition("orders", 0): 56})
    ]
    assert node.machine.of(events.StopReplicaAnswered) == [events.StopReplicaAnswered(3, 77, {})]
    assert node.machine.of(events.RequestFailed) == [events.RequestFailed(4, "no connection")]


def test_a_disconnected_broker_has_no_response() -> None:
    service = Service()
    service.register(2)
    node = Node(service)
    (broker,) = node.machine.of(events.SnapshotRead)[0].snapshot.brokers
    send = effects.SendStopReplica(3, 2, broker.epoch, ())
    node.script.update(on(events.DeletionsChanged, effects.Connect(broker), send, effects.Disconnect(2)))
    service.write(controller.delete_topic_path("x"), b"")
    (peer,) = node.host.peers
    assert peer.closed
    peer.calls[0][2]("closed")
    assert not node.machine.of(events.RequestFailed)


def test_what_clients_wait_for_is_completed_once() -> None:
    service = Service()
    node = Node(service, {events.AwaitDeletion: lambda event: [effects.Completion(event.token, 7)]})
    done: list[int] = []
    node.runtime.submit(events.AwaitDeletion(None, "orders", 0), done.append)
    assert done == [7]
    node.runtime.submit(events.AwaitTopic(None, "orders", TOPIC_ID, 1, 0), done.append)
    assert done == [7], "the machine has not answered"
    service.expire(node.session)
    node.runtime.close()
    node.runtime.submit(events.AwaitDeletion(None, "orders", 0), done.append)
    assert done == [7, KafkaErrorCode.NOT_CONTROLLER, KafkaErrorCode.NOT_CONTROLLER]


def test_timers_fire_once_are_replaced_and_cancelled() -> None:
    service = Service()
    name, other = ("retry", 1), ("retry", 2)
    timers = SetTimer(name, 100), SetTimer(other, 100), SetTimer(name, 200)
    node = Node(service, on(events.SnapshotRead, *timers, CancelTimer(other), CancelTimer(("no", 0))))
    service.clock.advance(199)
    assert not node.machine.of(events.TimerExpired)
    service.clock.advance(500)
    assert node.machine.of(events.TimerExpired) == [events.TimerExpired(name)]


def test_a_machine_that_resigns_is_dropped_and_another_one_elected() -> None:
    service = Service()
    node = Node(service)
    node.script.update(on(events.DeletionsChanged, SetTimer(("x", 0), 50), effects.Resign("an error")))
    service.write(controller.delete_topic_path("x"), b"")
    assert len(node.machines) == 2 and node.runtime.epoch == 2
    service.clock.advance(100)
    assert not node.machines[0].of(events.TimerExpired)


def test_a_deleted_controller_node_ends_the_term() -> None:
    service = Service()
    node = Node(service)
    service.delete(controller.CONTROLLER)
    assert len(node.machines) == 2 and node.runtime.epoch == 2


def test_another_broker_continues_after_an_expired_session() -> None:
    service = Service()
    first, second = Node(service, broker_id=1), Node(service, broker_id=2)
    assert not second.runtime.active
    service.expire(first.session)
    assert second.runtime.epoch == 2 and second.machine.of(events.SnapshotRead)
