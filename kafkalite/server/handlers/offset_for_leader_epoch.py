"""OffsetForLeaderEpoch, key 23, v2-4: returns the end offset of a leader epoch, so that readers detect truncation.

Version notes: v2 current leader epoch; v3 replica id; v4 flexible. Sources: KIP-101, KIP-320,
UnifiedLog.endOffsetForEpoch.
"""

from collections.abc import Generator

from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafkalite.server.requests.call import PartitionCall

UNDEFINED = -1

TopicResult = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
EpochEndOffset = TopicResult.EpochEndOffset


def offset_for_leader_epoch(call: PartitionCall, request: OffsetForLeaderEpochRequest) -> None:
    """Return the end offset of the largest epoch that is not above the requested one."""
    call.answer_from(ends(call, request), sum(1 + len(topic.partitions) for topic in request.topics))


def ends(
    call: PartitionCall, request: OffsetForLeaderEpochRequest
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    topics = call.elements()
    for topic in request.topics:
        found = call.elements()
        for asked in topic.partitions:
            found.add(end_of_epoch(call, topic.topic, asked.partition, asked.current_leader_epoch, asked.leader_epoch))
            yield
        topics.add(TopicResult(topic=topic.topic, partitions=found.finish()), 1 + len(topic.partitions))
        yield
    return OffsetForLeaderEpochResponse(topics=topics.finish())


def end_of_epoch(
    call: PartitionCall, topic: str, index: int, current_leader_epoch: int, leader_epoch: int
) -> EpochEndOffset:
    """Return the end offset of an epoch in a partition of this broker, or the error.

    Arguments:
        call: of the request.
        topic, index: the partition.
        current_leader_epoch: the one that the client knows; -1 = not checked.
        leader_epoch: the epoch whose end is returned.
    """
    partition = call.context.replicas.partition(topic, b"", index, by_id=False)
    error = partition if isinstance(partition, KafkaErrorCode) else partition.check_leader_epoch(current_leader_epoch)
    if error or isinstance(partition, KafkaErrorCode):
        return EpochEndOffset(error_code=error, partition=index, leader_epoch=UNDEFINED, end_offset=UNDEFINED)
    if leader_epoch == partition.leader_epoch:
        end_offset = partition.log.log_end_offset if partition.log is not None else 0
        return EpochEndOffset(error_code=0, partition=index, leader_epoch=leader_epoch, end_offset=end_offset)
    epoch, end_offset = (
        partition.log.epoch_end_offset(leader_epoch) if partition.log is not None else (UNDEFINED, UNDEFINED)
    )
    return EpochEndOffset(error_code=0, partition=index, leader_epoch=epoch, end_offset=end_offset)
