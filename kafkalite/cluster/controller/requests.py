"""Converts the controller's requests to brokers into messages, and the responses into events.

Of all live brokers, UpdateMetadata has all listeners. LeaderAndIsr has the addresses of the listener between brokers.
Source: ControllerChannelManager.scala (AbstractControllerBrokerRequestBatch) of Apache Kafka 3.9.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeAlias

from kafkalite.model import ZERO_UUID, Endpoint, TopicPartition
from kafkalite.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kafkalite.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkalite.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kafkalite.slicing import Steps
from kafkalite.state.controller.effects import (
    PartitionLeadership,
    PartitionMetadata,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    StoppedReplica,
    StoppedTopic,
    TopicLeadership,
    TopicMetadata,
)
from kafkalite.state.controller.events import LeaderAndIsrAnswered, StopReplicaAnswered, UpdateMetadataAnswered
from kafkalite.state.controller.values import Broker

Send: TypeAlias = SendUpdateMetadata | SendLeaderAndIsr | SendStopReplica
Answered: TypeAlias = UpdateMetadataAnswered | LeaderAndIsrAnswered | StopReplicaAnswered
StoppedPartition = StopReplicaRequest.StopReplicaTopicState.StopReplicaPartitionState
EndpointOf = Callable[[Broker], Endpoint | None]

FULL, INCREMENTAL = 2, 1  # AbstractControlRequest.Type
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}  # SecurityProtocol.java


def message(send: Send, controller_id: int, controller_epoch: int, endpoint_of: EndpointOf) -> Steps:
    """Return the request message; yields after each partition or topic.

    Arguments:
        send: of the machine.
        controller_id, controller_epoch: of this broker's term.
        endpoint_of: returns the address of a broker for other brokers; None = it has none.
    """
    sender: dict[str, Any] = {
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
        "broker_epoch": send.broker_epoch,
    }
    if isinstance(send, SendUpdateMetadata):
        return UpdateMetadataRequest(
            **sender,
            type=FULL if send.full else INCREMENTAL,
            topic_states=(yield from topics_of(send.topics, metadata_of_topic, metadata_of_partition)),
            live_brokers=list(map(live_broker, send.brokers)),
        )
    if isinstance(send, SendLeaderAndIsr):
        return LeaderAndIsrRequest(
            **sender,
            type=FULL if send.full else INCREMENTAL,
            topic_states=(yield from topics_of(send.topics, leadership_of_topic, leadership_of_partition)),
            live_leaders=list(live_leaders(send.live_leaders, endpoint_of)),
        )
    return StopReplicaRequest(**sender, topic_states=(yield from topics_of(send.topics, stopped_topic, stop_partition)))


def topics_of(
    topics: Iterable[Any], topic_of: Callable[[Any, list[Any]], Any], partition_of: Callable[[Any], Any]
) -> Steps:
    """Return the topics of a request; yields after each partition.

    Arguments:
        topics: of the machine.
        topic_of: creates a topic of the request with its partitions.
        partition_of: creates a partition of the request.
    """
    converted = []
    for topic in topics:
        partitions: list[Any] = []
        for partition in topic.partitions:
            partitions.append(partition_of(partition))
            yield
        converted.append(topic_of(topic, partitions))
    return converted


def live_broker(broker: Broker) -> UpdateMetadataRequest.UpdateMetadataBroker:
    """A live broker with all its listeners."""
    request = UpdateMetadataRequest.UpdateMetadataBroker
    endpoints = [
        request.UpdateMetadataEndpoint(
            host=each.host,
            port=each.port,
            listener=each.listener,
            security_protocol=SECURITY_PROTOCOLS[each.security_protocol],
        )
        for each in broker.endpoints
    ]
    return request(id=broker.broker_id, endpoints=endpoints, rack=broker.rack)


def metadata_of_topic(
    topic: TopicMetadata, partitions: list[UpdateMetadataPartitionState]
) -> UpdateMetadataRequest.UpdateMetadataTopicState:
    """The states of a topic's partitions."""
    return UpdateMetadataRequest.UpdateMetadataTopicState(
        topic_name=topic.topic, topic_id=topic.topic_id, partition_states=partitions
    )


def metadata_of_partition(partition: PartitionMetadata) -> UpdateMetadataPartitionState:
    """The state of a partition."""
    return UpdateMetadataPartitionState(
        partition_index=partition.partition,
        controller_epoch=partition.controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        zk_version=partition.partition_epoch,
        replicas=list(partition.replicas),
        offline_replicas=list(partition.offline_replicas),
        eligible_replicas=list(partition.eligible),
    )


def live_leaders(brokers: Iterable[Broker], endpoint_of: EndpointOf) -> Iterable[Any]:
    """The addresses of leaders for their followers."""
    for broker in brokers:
        endpoint = endpoint_of(broker)
        if endpoint is not None:
            yield LeaderAndIsrRequest.LeaderAndIsrLiveLeader(
                broker_id=broker.broker_id, host_name=endpoint.host, port=endpoint.port
            )


def leadership_of_topic(
    topic: TopicLeadership, partitions: list[LeaderAndIsrPartitionState]
) -> LeaderAndIsrRequest.LeaderAndIsrTopicState:
    """The partitions of a topic that the receiver hosts."""
    return LeaderAndIsrRequest.LeaderAndIsrTopicState(
        topic_name=topic.topic, topic_id=topic.topic_id, partition_states=partitions
    )


def leadership_of_partition(partition: PartitionLeadership) -> LeaderAndIsrPartitionState:
    """A partition that the receiver hosts."""
    return LeaderAndIsrPartitionState(
        partition_index=partition.partition,
        controller_epoch=partition.controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        partition_epoch=partition.partition_epoch,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
        is_new=partition.is_new,
        leader_recovery_state=partition.recovery_state,
        eligible_replicas=list(partition.eligible),
    )


def stopped_topic(topic: StoppedTopic, partitions: list[StoppedPartition]) -> StopReplicaRequest.StopReplicaTopicState:
    """The replicas of a topic that the receiver does not host any more."""
    return StopReplicaRequest.StopReplicaTopicState(topic_name=topic.topic, partition_states=partitions)


def stop_partition(replica: StoppedReplica) -> StoppedPartition:
    """A replica that the receiver does not host any more."""
    return StoppedPartition(
        partition_index=replica.partition, leader_epoch=replica.leader_epoch, delete_partition=replica.delete
    )


def convert_response(send: Send, response: Any) -> Generator[None, None, Answered]:
    """Return the event of a response; yields after each topic or partition."""
    if isinstance(send, SendUpdateMetadata):
        assert isinstance(response, UpdateMetadataResponse)
        return UpdateMetadataAnswered(send.request_id, response.error_code)
    if isinstance(send, SendLeaderAndIsr):
        assert isinstance(response, LeaderAndIsrResponse)
        return LeaderAndIsrAnswered(
            send.request_id, response.error_code, (yield from leadership_errors(send, response))
        )
    assert isinstance(response, StopReplicaResponse)
    errors: dict[TopicPartition, int] = {}
    for each in response.partition_errors:
        errors[TopicPartition(each.topic_name, each.partition_index)] = each.error_code
        yield
    return StopReplicaAnswered(send.request_id, response.error_code, errors)


def leadership_errors(
    send: SendLeaderAndIsr, response: LeaderAndIsrResponse
) -> Generator[None, None, Mapping[TopicPartition, int]]:
    """The errors by partition: by topic id since v5, by name before. An id that was not sent is ignored."""
    errors = {
        TopicPartition(each.topic_name, each.partition_index): each.error_code for each in response.partition_errors
    }
    names = {topic.topic_id: topic.topic for topic in send.topics if topic.topic_id != ZERO_UUID}
    for topic in response.topics:
        name = names.get(topic.topic_id)
        if name is None:
            continue
        for each in topic.partition_errors:
            errors[TopicPartition(name, each.partition_index)] = each.error_code
            yield
    return errors
