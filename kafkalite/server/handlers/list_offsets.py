"""ListOffsets, key 2, v1-11: returns offsets by timestamp: log start, log end, a time, or the largest timestamp.

A batch that must be decompressed for that, or that is large, is searched by a job; bytes that are not in memory are
read by a job.

Timestamps: -1 latest (last stable offset for read_committed), -2 earliest, -3 largest timestamp (v7), -4 earliest local
(v8), -5 latest tiered (v9, none here), -6 earliest pending upload (v11, none here).
A new leader of several replicas returns OFFSET_NOT_AVAILABLE (KIP-207), before v5 LEADER_NOT_AVAILABLE, until its high
watermark is at the start of its leader epoch.
For replicas (replica id >= 0), and for the debugging replica id -2, the log end takes the place of the high watermark;
-2 is also served by followers.
Sources: KIP-79, KIP-207, KIP-734, UnifiedLog.fetchOffsetByTimestamp, ReplicaManager.fetchOffset.
"""

from collections import defaultdict
from collections.abc import Callable, Generator

from kafkalite.cluster.partition.partition import Partition
from kafkalite.cluster.partition.state import PartitionState
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalite.server.requests.call import PartitionCall
from kafkalite.server.requests.offset_lookup import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST_TIERED,
    LOG_END,
    MAX_TIMESTAMP,
    OffsetLookup,
    OffsetLookups,
    PartitionResponse,
    TopicResponse,
    look_up_offset,
)

SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
NOT_AVAILABLE_SINCE = 5

CLIENT = -1  # replica ids; brokers have ids from 0 on
DEBUGGING = -2

EpochCheck = Callable[[PartitionState, int], int]
PartitionRequest = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition


def list_offsets(call: PartitionCall, request: ListOffsetsRequest) -> None:
    """Look up each partition in its log; a partition that occurs twice is rejected, as in Kafka."""
    objects = sum(1 + len(topic.partitions) for topic in request.topics)
    look_ups: list[OffsetLookup] = []

    def found(topics: list[TopicResponse]) -> None:
        OffsetLookups(call, look_ups, lambda: call.answer_from(build_response(call, topics), objects)).start()

    call.in_slices(filled_in(call, request, look_ups), objects, found)


def build_response(call: PartitionCall, topics: list[TopicResponse]) -> Generator[None, None, ListOffsetsResponse]:
    """Build the response, in pieces if it is large."""
    answered = call.elements()
    for topic in topics:
        partitions = call.elements()
        for partition in topic.partitions:
            partitions.add(partition)
            yield
        answered.add(TopicResponse(name=topic.name, partitions=partitions.finish()), 1 + len(topic.partitions))
        yield
    return ListOffsetsResponse(topics=answered.finish())


def filled_in(
    call: PartitionCall, request: ListOffsetsRequest, look_ups: list[OffsetLookup]
) -> Generator[None, None, list[TopicResponse]]:
    """Build the responses of all partitions; those that need a lookup are added to `look_ups`."""
    isolation = request.isolation_level if request.replica_id == CLIENT else LOG_END
    check = PartitionState.check_reader if request.replica_id == DEBUGGING else PartitionState.check_leader_epoch
    knows_code = call.version >= NOT_AVAILABLE_SINCE
    unavailable = KafkaErrorCode.OFFSET_NOT_AVAILABLE if knows_code else KafkaErrorCode.LEADER_NOT_AVAILABLE
    times: dict[TopicPartition, int] = defaultdict(int)
    for topic in request.topics:
        for asked in topic.partitions:
            times[TopicPartition(topic.name, asked.partition_index)] += 1
            yield
    topics = []
    for topic in request.topics:
        answers: list[PartitionResponse] = []
        topics.append(TopicResponse(name=topic.name, partitions=answers))
        for asked in topic.partitions:
            yield
            answer = PartitionResponse(partition_index=asked.partition_index)
            answers.append(answer)
            if times[TopicPartition(topic.name, asked.partition_index)] > 1:
                answer.error_code = KafkaErrorCode.INVALID_REQUEST
                continue
            partition = call.context.replicas.partition(topic.name, b"", asked.partition_index, by_id=False)
            answer.error_code = error_of(partition, asked, call.version, check)
            if isinstance(partition, Partition) and not answer.error_code:
                look_up = look_up_offset(answer, partition, asked.timestamp, isolation, unavailable)
                look_ups += [] if look_up is None else [look_up]
    return topics


def error_of(partition: Partition | KafkaErrorCode, asked: PartitionRequest, version: int, check: EpochCheck) -> int:
    """Return the error of a partition, 0 if it can be looked up.

    Arguments:
        partition: or the error of its name.
        asked: the request for it.
        version: of the request.
        check: compares the leader epoch, where the role of this broker allows the request.
    """
    if isinstance(partition, KafkaErrorCode):
        return partition
    error = check(partition, asked.current_leader_epoch)
    if asked.timestamp < EARLIEST_PENDING_UPLOAD or version < SINCE.get(asked.timestamp, 0):
        return error or KafkaErrorCode.UNSUPPORTED_VERSION
    return error
