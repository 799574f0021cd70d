"""How a scripted broker serves the requests that a test does not script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import ZERO_UUID
from kafkalite.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafkalite.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafkalite.protocol.schema import Request, Response
from kafkalite.records import BatchError
from tests.kit.scripted_cluster import ScriptedCluster, ScriptedPartition
from tests.kit.scripted_groups import GROUP_HANDLERS

if TYPE_CHECKING:
    from tests.kit.scripted_broker import ScriptedCall

TOPIC_IDS_IN_PRODUCE = 13
TOPIC_IDS_IN_FETCH = 13
SEVERAL_COORDINATORS = 4
AT_A_TIME_VERSION = 1
Produced = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
Fetched = FetchResponse.FetchableTopicResponse.PartitionData


def api_versions(call: ScriptedCall) -> Response:
    """The served versions of the scripted broker."""
    served = [
        ApiVersionsResponse.ApiVersion(api_key=request.api_key, min_version=lowest, max_version=highest)
        for request, (lowest, highest) in call.broker.versions.items()
    ]
    return ApiVersionsResponse(api_keys=served)


def metadata(call: ScriptedCall) -> Response:
    """The requested topics; brokers that have stopped are named, too."""
    cluster = call.cluster
    Broker = MetadataResponse.MetadataResponseBroker
    brokers = [
        Broker(node_id=node, host=host, port=port, rack=cluster.racks.get(node))
        for node, (host, port) in cluster.addresses.items()
    ]
    asked = call.request.topics
    if asked is None or (not asked and call.version == 0):
        names: list[tuple[str | None, bytes]] = [(name, ZERO_UUID) for name in cluster.topics]
    else:
        names = [(each.name, each.topic_id) for each in asked]
    if cluster.auto_create and call.request.allow_auto_topic_creation:
        for name, _ in names:
            if name is not None and name not in cluster.topics:
                cluster.create_topic(name, cluster.auto_create)
    topics = [_described(cluster, name or cluster.name_of(topic_id), name, topic_id) for name, topic_id in names]
    return MetadataResponse(
        brokers=brokers, cluster_id=cluster.cluster_id, controller_id=cluster.controller, topics=topics
    )


def _described(cluster: ScriptedCluster, found: str | None, name: str | None, topic_id: bytes) -> Any:
    Topic = MetadataResponse.MetadataResponseTopic
    topic = None if found is None else cluster.topics.get(found)
    if topic is None:
        unknown = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name else KafkaErrorCode.UNKNOWN_TOPIC_ID
        return Topic(error_code=unknown, name=name, topic_id=topic_id, partitions=[])
    partitions = [
        Topic.MetadataResponsePartition(
            error_code=KafkaErrorCode.LEADER_NOT_AVAILABLE if each.leader < 0 else 0,
            partition_index=index,
            leader_id=each.leader,
            leader_epoch=each.leader_epoch,
            replica_nodes=each.replicas,
            isr_nodes=each.replicas,
        )
        for index, each in enumerate(topic.partitions)
    ]
    return Topic(name=found, topic_id=topic.topic_id, partitions=partitions)


def find_coordinator(call: ScriptedCall) -> Response:
    """The node of `ScriptedCluster.coordinators`."""
    cluster, request = call.cluster, call.request

    def address(key: str) -> dict[str, Any]:
        node = cluster.coordinators.get(key, cluster.coordinator)
        host, port = cluster.addresses[node]
        return {"node_id": node, "host": host, "port": port}

    if call.version < SEVERAL_COORDINATORS:
        return FindCoordinatorResponse(**address(request.key))
    Coordinator = FindCoordinatorResponse.Coordinator
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, **address(key)) for key in request.coordinator_keys]
    )


def init_producer_id(call: ScriptedCall) -> Response:
    """A new identity, or the next epoch of the requested one."""
    cluster, request = call.cluster, call.request
    if not call.apply:
        return InitProducerIdResponse(producer_epoch=-1)
    known = cluster.producer_epochs.get(request.producer_id)
    if known is not None and request.producer_epoch == known:
        cluster.producer_epochs[request.producer_id] = known + 1
        return InitProducerIdResponse(producer_id=request.producer_id, producer_epoch=known + 1)
    cluster.next_producer_id += 1
    cluster.producer_epochs[cluster.next_producer_id] = 0
    return InitProducerIdResponse(producer_id=cluster.next_producer_id, producer_epoch=0)


def _led(call: ScriptedCall, name: str | None, index: int, *, by_id: bool) -> tuple[int, ScriptedPartition | None]:
    """A partition that the node leads, or the error code."""
    partition = call.cluster.partition(name, index)
    if partition is None:
        unknown_id = by_id and name is None
        return KafkaErrorCode.UNKNOWN_TOPIC_ID if unknown_id else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if partition.leader != call.node:
        return KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, partition
    return KafkaErrorCode.NONE, partition


def produce(call: ScriptedCall) -> Response | None:
    """Append the batches of led partitions."""
    responses, moved = [], set[int]()
    by_id = call.version >= TOPIC_IDS_IN_PRODUCE
    for topic in call.request.topic_data:
        name = call.cluster.name_of(topic.topic_id) if by_id else topic.name
        outcomes = []
        for part in topic.partition_data:
            code, partition = _led(call, name, part.index, by_id=by_id)
            outcome = Produced(index=part.index, error_code=code, base_offset=-1)
            if partition is not None and code:
                moved.add(partition.leader)
                outcome.current_leader = Produced.LeaderIdAndEpoch(
                    leader_id=partition.leader, leader_epoch=partition.leader_epoch
                )
            elif partition is not None:
                outcome.log_start_offset = partition.log_start
                if call.applies_to(name or "", part.index):
                    outcome.error_code, outcome.base_offset = _appended(partition, bytes(part.records))
            outcomes.append(outcome)
        responses.append(
            ProduceResponse.TopicProduceResponse(
                name="" if by_id else topic.name, topic_id=topic.topic_id, partition_responses=outcomes
            )
        )
    if call.request.acks == 0:
        call.no_response()
        return None
    Endpoint = ProduceResponse.NodeEndpoint
    return ProduceResponse(responses=responses, node_endpoints=_endpoints(call.cluster, moved, Endpoint))


def _appended(partition: ScriptedPartition, records: bytes) -> tuple[int, int]:
    try:
        return partition.append(records)
    except BatchError as error:
        return error.code, -1


def _endpoints(cluster: ScriptedCluster, nodes: set[int], endpoint: Callable[..., Any]) -> list[Any]:
    return [
        endpoint(node_id=node, host=cluster.addresses[node][0], port=cluster.addresses[node][1])
        for node in nodes
        if node in cluster.addresses
    ]


def fetch(call: ScriptedCall) -> Response | None:
    """Batches of led partitions, without sessions; waits for `min_bytes` up to `max_wait_ms`."""
    response, size, failed = _fetched(call)
    request = call.request
    if size >= request.min_bytes or failed or call.at_once or not request.max_wait_ms or not request.topics:
        return response
    FetchWait(call)
    return None


class FetchWait:
    """A Fetch that waits for data."""

    def __init__(self, call: ScriptedCall) -> None:
        self._call = call
        self._done = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(call.request.max_wait_ms / 1000, self._end)
        self._watch()

    def _watch(self) -> None:
        asked = [self._call.cluster.partition(name, part.partition) for name, part in _asked(self._call)]
        self._watched = [partition for partition in asked if partition is not None]
        for partition in self._watched:
            partition.appended.append(self._appended)

    def _appended(self) -> None:
        if self._done:
            return
        response, size, failed = _fetched(self._call)
        if size >= self._call.request.min_bytes or failed:
            self._complete(response)
        else:
            self._watch()

    def _end(self) -> None:
        if not self._done:
            self._complete(_fetched(self._call)[0])

    def _complete(self, response: Response) -> None:
        self._done = True
        self._timer.cancel()
        for partition in self._watched:
            if self._appended in partition.appended:
                partition.appended.remove(self._appended)
        self._call.answer(response)


def _asked(call: ScriptedCall) -> list[tuple[str | None, Any]]:
    by_id = call.version >= TOPIC_IDS_IN_FETCH
    return [
        (call.cluster.name_of(topic.topic_id) if by_id else topic.topic, part)
        for topic in call.request.topics
        for part in topic.partitions
    ]


def _fetched(call: ScriptedCall) -> tuple[FetchResponse, int, bool]:
    """The response now, the size of its records, and whether a partition has an error or has diverged."""
    by_id = call.version >= TOPIC_IDS_IN_FETCH
    responses, size, failed, moved = [], 0, False, set[int]()
    for topic in call.request.topics:
        name = call.cluster.name_of(topic.topic_id) if by_id else topic.topic
        parts = []
        for asked in topic.partitions:
            code, partition = _led(call, name, asked.partition, by_id=by_id)
            part = Fetched(
                partition_index=asked.partition,
                error_code=code,
                high_watermark=-1,
                aborted_transactions=None,
                records=b"",
            )
            if partition is not None and code:
                moved.add(partition.leader)
                part.current_leader = Fetched.LeaderIdAndEpoch(
                    leader_id=partition.leader, leader_epoch=partition.leader_epoch
                )
            elif partition is not None:
                _read(part, partition, asked, max(0, call.request.max_bytes - size))
            size += len(part.records)
            failed |= part.error_code != 0 or part.diverging_epoch is not None
            parts.append(part)
        responses.append(
            FetchResponse.FetchableTopicResponse(
                topic="" if by_id else topic.topic, topic_id=topic.topic_id, partitions=parts
            )
        )
    Endpoint = FetchResponse.NodeEndpoint
    response = FetchResponse(responses=responses, node_endpoints=_endpoints(call.cluster, moved, Endpoint))
    return response, size, failed


def _read(part: Any, partition: ScriptedPartition, asked: Any, bytes_max: int) -> None:
    epoch = asked.current_leader_epoch
    if -1 < epoch < partition.leader_epoch:
        part.error_code = KafkaErrorCode.FENCED_LEADER_EPOCH
    elif epoch > partition.leader_epoch:
        part.error_code = KafkaErrorCode.UNKNOWN_LEADER_EPOCH
    elif asked.last_fetched_epoch >= 0 and _diverges(part, partition, asked):
        part.high_watermark = partition.end
    elif not partition.log_start <= asked.fetch_offset <= partition.end:
        part.error_code = KafkaErrorCode.OFFSET_OUT_OF_RANGE
    else:
        part.high_watermark = part.last_stable_offset = partition.end
        part.log_start_offset = partition.log_start
        part.records = partition.read(asked.fetch_offset, min(asked.partition_max_bytes, bytes_max))


def _diverges(part: Any, partition: ScriptedPartition, asked: Any) -> bool:
    epoch, end = partition.end_of_epoch(asked.last_fetched_epoch)
    if epoch == asked.last_fetched_epoch and end >= asked.fetch_offset:
        return False
    part.diverging_epoch = Fetched.EpochEndOffset(epoch=epoch, end_offset=end)
    return True


def list_offsets(call: ScriptedCall) -> Response:
    """Offsets of led partitions."""
    Topic = ListOffsetsResponse.ListOffsetsTopicResponse
    topics = []
    for topic in call.request.topics:
        parts = []
        for asked in topic.partitions:
            code, partition = _led(call, topic.name, asked.partition_index, by_id=False)
            part = Topic.ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
            if partition is not None and not code:
                part.offset, part.timestamp = partition.offset_for(asked.timestamp)
                part.leader_epoch = partition.leader_epoch if part.offset >= 0 else -1
            parts.append(part)
        topics.append(Topic(name=topic.name, partitions=parts))
    return ListOffsetsResponse(topics=topics)


def offset_for_leader_epoch(call: ScriptedCall) -> Response:
    """End offsets of leader epochs."""
    Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    topics = []
    for topic in call.request.topics:
        parts = []
        for asked in topic.partitions:
            code, partition = _led(call, topic.topic, asked.partition, by_id=False)
            part = Topic.EpochEndOffset(partition=asked.partition, error_code=code)
            if partition is not None and not code:
                part.leader_epoch, part.end_offset = partition.end_of_epoch(asked.leader_epoch)
            parts.append(part)
        topics.append(Topic(topic=topic.topic, partitions=parts))
    return OffsetForLeaderEpochResponse(topics=topics)


def create_topics(call: ScriptedCall) -> Response:
    """Create the topics."""
    Result = CreateTopicsResponse.CreatableTopicResult
    results = []
    for each in call.request.topics:
        if each.name in call.cluster.topics:
            results.append(Result(name=each.name, error_code=KafkaErrorCode.TOPIC_ALREADY_EXISTS, error_message=None))
            continue
        topic_id = ZERO_UUID
        if call.apply and not call.request.validate_only:
            topic_id = call.cluster.create_topic(each.name, max(1, each.num_partitions)).topic_id
        results.append(Result(name=each.name, topic_id=topic_id, error_message=None))
    return CreateTopicsResponse(topics=results)


def delete_topics(call: ScriptedCall) -> Response:
    """Delete the topics."""
    Result, cluster = DeleteTopicsResponse.DeletableTopicResult, call.cluster
    named = [each.name or cluster.name_of(each.topic_id) for each in call.request.topics] + call.request.topic_names
    results = []
    for name in named:
        if name not in cluster.topics:
            results.append(Result(name=name, error_code=KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        results.append(Result(name=name, topic_id=cluster.topics[name].topic_id))
        if call.apply:
            cluster.delete_topic(name)
    return DeleteTopicsResponse(responses=results)


HANDLERS: dict[type[Request], Callable[[ScriptedCall], Response | None]] = {
    ApiVersionsRequest: api_versions,
    MetadataRequest: metadata,
    FindCoordinatorRequest: find_coordinator,
    InitProducerIdRequest: init_producer_id,
    ProduceRequest: produce,
    FetchRequest: fetch,
    ListOffsetsRequest: list_offsets,
    OffsetForLeaderEpochRequest: offset_for_leader_epoch,
    CreateTopicsRequest: create_topics,
    DeleteTopicsRequest: delete_topics,
    **GROUP_HANDLERS,
}
