"""RewindConsumer, key 10005, v0: sets the offsets of a group, also while the group has members.

1. Every partition is looked up first. An offset outside the log is moved to the nearest end of the log; a time becomes
   the first record of that time or later, or the log end if there is none.
2. Then all offsets are one command of the group's shard, and one batch.
3. Members that own a rewound partition are fenced, whatever their protocol: members of classic groups are removed,
   members of consumer groups have an old member epoch. Both drop their partitions as lost, rejoin and read the new
   offsets.

Errors per partition: those of ListOffsets, INVALID_REQUEST for a partition that occurs twice. Errors of all partitions:
INVALID_GROUP_ID, GROUP_ID_NOT_FOUND and those of the coordinator.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from kafkalite.cluster.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.extensions.rewind_consumer import RewindConsumerRequest, RewindConsumerResponse
from kafkalite.server.call import GroupPartitionCall
from kafkalite.server.offset_lookup import (
    EARLIEST,
    LATEST,
    OffsetLookup,
    OffsetLookups,
    PartitionResponse,
    look_up_offset,
)
from kafkalite.state.groups.offsets.manager import CommitResult, PartitionCommit

NO_OFFSET = -1

Topic = RewindConsumerResponse.RewoundTopic
Rewound = Topic.RewoundPartition
Asked = RewindConsumerRequest.RewoundTopic.RewoundPartition


class RequestedRewind(NamedTuple):
    """One partition of the request: its new offset, after `found` is filled in, or its error."""

    topic: str
    asked: Asked
    found: PartitionResponse
    partition: Partition | None = None


def rewind_consumer(call: GroupPartitionCall, request: RewindConsumerRequest) -> None:
    """Look up every partition, then rewind the group."""
    times = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    wanted, look_ups = [], []
    for topic in request.topics:
        for asked in topic.partitions:
            again = times[topic.name, asked.partition_index] > 1
            one, look_up = requested_rewind(call, topic.name, asked, again=again)
            wanted.append(one)
            look_ups += [] if look_up is None else [look_up]
    OffsetLookups(call, look_ups, lambda: rewind(call, request, wanted)).start()


def requested_rewind(
    call: GroupPartitionCall, topic: str, asked: Asked, *, again: bool
) -> tuple[RequestedRewind, OffsetLookup | None]:
    """Return the new offset of a partition as far as it is known without reading records."""
    found = PartitionResponse(partition_index=asked.partition_index)
    partition = call.context.replicas.partition(topic, b"", asked.partition_index, by_id=False)
    if again or asked.offset < NO_OFFSET or (asked.offset == NO_OFFSET and asked.timestamp < EARLIEST):
        found.error_code = KafkaErrorCode.INVALID_REQUEST
        return RequestedRewind(topic, asked, found), None
    if isinstance(partition, KafkaErrorCode):
        found.error_code = partition
        return RequestedRewind(topic, asked, found), None
    one = RequestedRewind(topic, asked, found, partition)
    if asked.offset != NO_OFFSET:
        found.offset = asked.offset
        return one, None
    return one, look_up_offset(found, partition, asked.timestamp, committed_only=False)


def rewind(call: GroupPartitionCall, request: RewindConsumerRequest, wanted: list[RequestedRewind]) -> None:
    """Submit the rewind of all partitions."""
    commits = list(committable(call, wanted))
    call.context.groups.submit(
        request.group_id,
        lambda shard, token, now: shard.rewind(request.group_id, commits, token, now),
        call.completion(
            lambda done: answer(request, wanted, done), lambda error: answer(request, wanted, CommitResult(error))
        ),
    )


def committable(call: GroupPartitionCall, wanted: list[RequestedRewind]) -> Iterator[PartitionCommit]:
    """Yield the valid offsets, each moved into its log."""
    for one in wanted:
        found, partition = one.found, one.partition
        topic = call.context.tables.topics.get(one.topic)
        if found.error_code or partition is None:
            continue
        if topic is None:  # deleted while other partitions were looked up
            found.error_code = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        if found.offset == NO_OFFSET:  # no record has that time or a later one
            look_up_offset(found, partition, LATEST, committed_only=False)
        found.offset = min(max(found.offset, partition.log_start_offset), partition.high_watermark)
        yield PartitionCommit(one.topic, found.partition_index, found.offset, topic_id=topic.topic_id)


def answer(request: RewindConsumerRequest, wanted: list[RequestedRewind], done: CommitResult) -> RewindConsumerResponse:
    """Build the response with every partition of the request in its order."""
    left = iter(wanted)
    topics = []
    for topic in request.topics:
        partitions = []
        for _ in topic.partitions:
            found = next(left).found
            error = found.error_code or done.error
            offset = NO_OFFSET if error else found.offset
            partitions.append(Rewound(partition_index=found.partition_index, offset=offset, error_code=error))
        topics.append(Topic(name=topic.name, partitions=partitions))
    return RewindConsumerResponse(topics=topics)
