"""AlterPartition as events of the controller, its results as responses, and the way through the runtime."""

import pytest

from kafkalite.cluster.controller.partition_changes import isr_changes, isr_response, shutdown, shutdown_response
from kafkalite.coordination import znodes
from kafkalite.coordination.znodes import brokers
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Endpoint, TopicPartition
from kafkalite.protocol.messages.alter_partition import AlterPartitionRequest
from kafkalite.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kafkalite.slicing import finish
from kafkalite.state.controller import effects, events
from kafkalite.state.controller.values import LeaderAndIsr, PartitionOutcome
from tests.unit.cluster.controller.kit import TOPIC_ID, Service
from tests.unit.cluster.controller.test_runtime import Node

Topic = AlterPartitionRequest.TopicData
Change = Topic.PartitionData
KEYS = [TopicPartition("orders", index) for index in range(2)]


def request() -> AlterPartitionRequest:
    """A request v3 for one partition, and one with members as v2 has them."""
    members = [Change.BrokerState(broker_id=1, broker_epoch=7), Change.BrokerState(broker_id=2, broker_epoch=9)]
    return AlterPartitionRequest(
        broker_id=1,
        broker_epoch=7,
        topics=[
            Topic(
                topic_id=TOPIC_ID,
                partitions=[
                    Change(partition_index=0, leader_epoch=3, new_isr_with_epochs=members, partition_epoch=5),
                    Change(partition_index=1, leader_epoch=4, new_isr=[1], leader_recovery_state=1, partition_epoch=6),
                ],
            )
        ],
    )


def test_request_of_either_version_is_an_event() -> None:
    first = events.RequestedIsr(TOPIC_ID, 0, 3, 5, ((1, 7), (2, 9)))
    second = events.RequestedIsr(TOPIC_ID, 1, 4, 6, ((1, -1),), recovering=True)
    assert finish(isr_changes(request())) == events.AlterPartitions(None, 1, 7, (first, second))


def test_response_has_the_committed_states_and_errors_without_states() -> None:
    state = LeaderAndIsr(1, 3, (1, 2), 1, recovering=True)
    outcomes = (PartitionOutcome(KEYS[0], 0, state, 6), PartitionOutcome(KEYS[1], 74, state, 9))
    response = finish(isr_response(request(), effects.Completion(None, 0, outcomes)))
    (topic,) = response.topics
    found = [
        (each.error_code, each.leader_id, each.leader_epoch, each.isr, each.leader_recovery_state, each.partition_epoch)
        for each in topic.partitions
    ]
    assert topic.topic_id == TOPIC_ID and found == [(0, 1, 3, [1, 2], 1, 6), (74, 0, 0, [], 0, 0)]
    refused = finish(isr_response(request(), effects.Completion(None, KafkaErrorCode.STALE_BROKER_EPOCH)))
    assert (refused.error_code, refused.topics) == (KafkaErrorCode.STALE_BROKER_EPOCH, [])


def test_request_waits_for_the_machine_and_fails_at_the_end_of_the_term() -> None:
    service = Service()
    node = Node(service)
    results: list[effects.Completion] = []
    node.script[events.AlterPartitions] = lambda event: [effects.Completion(event.token, 0)]
    node.runtime.request(isr_changes(request()), results.append)
    assert [each.error for each in results] == [0]
    del node.script[events.AlterPartitions]
    node.runtime.request(isr_changes(request()), results.append)
    node.runtime.close()
    assert [each.error for each in results] == [0, KafkaErrorCode.NOT_CONTROLLER]
    node.runtime.request(isr_changes(request()), results.append)
    assert results[-1].error == KafkaErrorCode.NOT_CONTROLLER


def test_registration_after_a_power_failure_is_one_for_the_machine() -> None:
    service = Service()
    endpoint = Endpoint("PLAINTEXT", "host", 9092)
    for broker_id in (1, 2):
        registration = brokers.BrokerRegistration(
            (endpoint,), timestamp_ms=1, unclean_since=0 if broker_id == 2 else -1
        )
        service.write(brokers.registration_path(broker_id), brokers.encode_registration(registration))
    (event,) = Node(service).machine.of(events.SnapshotRead)
    assert [(each.broker_id, each.unclean_since) for each in event.snapshot.brokers] == [(1, -1), (2, 0)]


def test_configs_of_a_topic_are_read_for_an_unclean_election() -> None:
    service = Service()
    service.write(znodes.topic_config_path("yes"), znodes.encode_configs({"unclean.leader.election.enable": "true"}))
    service.write(znodes.topic_config_path("no"), znodes.encode_configs({}))
    service.write(znodes.topic_config_path("invalid"), b"[]")
    wanted = [effects.ReadTopicConfigs(name) for name in ("yes", "no", "invalid", "absent")]
    node = Node(service, {events.SnapshotRead: lambda _event: wanted})
    found = {event.topic: event.unclean_elections for event in node.machine.of(events.TopicConfigsRead)}
    assert found == {"yes": True, "no": False, "absent": False}
    node.runtime.configs_changed("yes")
    assert node.machine.of(events.ConfigsChanged) == [events.ConfigsChanged("yes", 1)]


def test_minimum_of_topics_with_several_replicas_is_read_with_them() -> None:
    service = Service()
    minimums = {"two": {"min.insync.replicas": "2"}, "default": {}, "single": {"min.insync.replicas": "2"}}
    for name, configs in minimums.items():
        replicas = (1,) if name == "single" else (1, 2)
        service.write(znodes.topic_path(name), znodes.encode_topic(znodes.TopicNode(TOPIC_ID, {0: replicas})))
        service.write(znodes.topic_config_path(name), znodes.encode_configs(configs))
    node = Node(service)
    (event,) = node.machine.of(events.SnapshotRead)
    found = {name: each.min_insync_replicas for name, each in event.snapshot.topics.items()}
    assert found == {"two": 2, "default": None, "single": None}


def test_shutdown_returns_the_partitions_that_the_broker_still_leads() -> None:
    request = ControlledShutdownRequest(broker_id=1, broker_epoch=7)
    assert finish(shutdown(request)) == events.ShutDownBroker(None, 1, 7)
    led, moved = LeaderAndIsr(1, 3, (1,), 1), LeaderAndIsr(2, 4, (2,), 1)
    outcomes = (PartitionOutcome(KEYS[0], 0, led, 6), PartitionOutcome(KEYS[1], 0, moved, 7), PartitionOutcome(None, 3))
    response = finish(shutdown_response(request, effects.Completion(None, 0, outcomes)))
    remaining = [(each.topic_name, each.partition_index) for each in response.remaining_partitions]
    assert (response.error_code, remaining) == (0, [("orders", 0)])


@pytest.mark.parametrize("at", [0, 1])
def test_request_of_another_broker_is_answered_while_it_is_not_the_controller(at: int) -> None:
    service = Service()
    nodes = [Node(service), Node(service, broker_id=2)]
    results: list[effects.Completion] = []
    nodes[at].runtime.request(isr_changes(request()), results.append)
    assert [each.error for each in results] == ([] if at == 0 else [KafkaErrorCode.NOT_CONTROLLER])
