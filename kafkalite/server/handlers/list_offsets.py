"""ListOffsets, key 2, v1-11. The offset at a place in a partition: its ends, a time, or the record with the largest
timestamp.

Timestamps: -1 latest (last stable offset for read_committed), -2 earliest, -3 largest timestamp (v7), -4 earliest
local (v8),
-5 latest tiered (v9, none here), -6 earliest pending upload (v11, none here). Sources: KIP-79, KIP-734,
UnifiedLog.fetchOffsetByTimestamp.
"""

import logging

from kafkalite.cluster.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafkalite.server.call import Call

LOGGER = logging.getLogger("kafkalite.server")
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
UNKNOWN = -1

Place = tuple[int, int, int]  # timestamp, offset, leader epoch; -1 = unknown
NOWHERE: Place = (UNKNOWN, UNKNOWN, UNKNOWN)

TopicResponse = ListOffsetsResponse.ListOffsetsTopicResponse
PartitionResponse = TopicResponse.ListOffsetsPartitionResponse


def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Look every partition up in its own log."""
    committed_only = request.isolation_level == READ_COMMITTED
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            partition = call.broker.replicas.partition(topic.name, b"", asked.partition_index, by_id=False)
            answers.append(
                answer(
                    partition,
                    asked.partition_index,
                    asked.timestamp,
                    asked.current_leader_epoch,
                    committed_only,
                    call.version,
                )
            )
        topics.append(TopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def answer(
    partition: Partition | int,
    index: int,
    timestamp: int,
    current_leader_epoch: int,
    committed_only: bool,
    version: int,
) -> PartitionResponse:
    """One partition's answer."""
    if isinstance(partition, int):
        return PartitionResponse(partition_index=index, error_code=partition)
    error = partition.check_leader_epoch(current_leader_epoch)
    if timestamp < EARLIEST_PENDING_UPLOAD or version < SINCE.get(timestamp, 0):
        error = error or KafkaErrorCode.UNSUPPORTED_VERSION
    if error:
        return PartitionResponse(partition_index=index, error_code=error)
    try:
        at_timestamp, offset, leader_epoch = find(partition, timestamp, committed_only)
    except OSError as failure:
        LOGGER.error("%s-%d: cannot look up %d: %s", partition.topic, index, timestamp, failure)
        return PartitionResponse(partition_index=index, error_code=KafkaErrorCode.KAFKA_STORAGE_ERROR)
    return PartitionResponse(
        partition_index=index, error_code=0, timestamp=at_timestamp, offset=offset, leader_epoch=leader_epoch
    )


def find(partition: Partition, timestamp: int, committed_only: bool) -> Place:
    """Where `timestamp` (ms, or one of the names above) is in this partition."""
    log = partition.log
    end_offset = partition.last_stable_offset if committed_only else partition.high_watermark
    if timestamp == LATEST:
        return (UNKNOWN, end_offset, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epoch_at(partition.log_start_offset) if log is not None else UNKNOWN
        return (UNKNOWN, partition.log_start_offset, epoch)
    if log is None or timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOWHERE
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.look_up_time(timestamp)
    return found if found is not None and found[1] < end_offset else NOWHERE
