"""RewindConsumer, key 10005, v0: sets the offsets of a group, also while the group has members.

1. Every partition is looked up first. An offset outside the log is moved to the nearest end of the log; a time becomes
   the first record of that time or later, or the log end if there is none. Other brokers of the cluster look up the
   partitions that they lead (`remote_offsets`).
2. Then all offsets are one command of the group's shard, and one batch.
3. Members that own a rewound partition are fenced, whatever their protocol: members of classic groups are removed,
   members of consumer groups have an old member epoch. Both drop their partitions as lost, rejoin and read the new
   offsets.

Errors per partition: those of ListOffsets, LEADER_NOT_AVAILABLE and REQUEST_TIMED_OUT for a leader that cannot be
reached or does not answer in time, INVALID_REQUEST for a partition that occurs twice. Errors of all partitions:
INVALID_GROUP_ID, GROUP_ID_NOT_FOUND and those of the coordinator.
"""

from collections import Counter
from collections.abc import Iterator

from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import READ_UNCOMMITTED, TopicPartition
from kafkalite.protocol.extensions.rewind_consumer import RewindConsumerRequest, RewindConsumerResponse
from kafkalite.server.requests.call import GroupPartitionCall
from kafkalite.server.requests.offset_lookup import (
    EARLIEST,
    LATEST,
    OffsetLookup,
    OffsetLookups,
    PartitionResponse,
    look_up_offset,
)
from kafkalite.server.requests.remote_offsets import RemoteOffsets, RemotePartition, look_up_elsewhere
from kafkalite.state.groups.offsets.manager import CommitResult, PartitionCommit

NO_OFFSET = -1

Topic = RewindConsumerResponse.RewoundTopic
Rewound = Topic.RewoundPartition
Asked = RewindConsumerRequest.RewoundTopic.RewoundPartition


class RequestedRewind:
    """One partition of the request: its new offset, after `found` is filled in, or its error.

    Arguments:
        topic, asked: the partition, and where to rewind it.
        found: the offset or the error.
        partition: the partition if this broker leads it.
        elsewhere: whether another broker leads it.

    Attributes:
        bounds: log start and high watermark as that broker reports them.
    """

    def __init__(
        self,
        topic: str,
        asked: Asked,
        found: PartitionResponse,
        partition: Partition | None = None,
        *,
        elsewhere: bool = False,
    ) -> None:
        self.topic = topic
        self.asked = asked
        self.found = found
        self.partition = partition
        self.elsewhere = elsewhere
        self.bounds: tuple[int, int] | None = None


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
    OffsetLookups(call, look_ups, lambda: look_up_others(call, request, wanted)).start()


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
        elsewhere = partition == KafkaErrorCode.NOT_LEADER_OR_FOLLOWER and call.context.peers is not None
        if not elsewhere:
            found.error_code = partition
        return RequestedRewind(topic, asked, found, elsewhere=elsewhere), None
    one = RequestedRewind(topic, asked, found, partition)
    if asked.offset != NO_OFFSET:
        found.offset = asked.offset
        return one, None
    return one, look_up_offset(found, partition, asked.timestamp, READ_UNCOMMITTED)


def look_up_others(call: GroupPartitionCall, request: RewindConsumerRequest, wanted: list[RequestedRewind]) -> None:
    """Look up the partitions that other brokers lead, then rewind."""
    others = [one for one in wanted if one.elsewhere]
    peers = call.context.peers
    if peers is None or not others:
        rewind(call, request, wanted)
        return

    def looked_up(results: dict[TopicPartition, RemoteOffsets]) -> None:
        for one in others:
            fill_in_remote(one, results[TopicPartition(one.topic, one.asked.partition_index)])
        rewind(call, request, wanted)

    partitions = [RemotePartition(one.topic, one.asked.partition_index, timestamp_of(one.asked)) for one in others]
    look_up_elsewhere(call.context.image, peers, partitions, call.at_others(looked_up))


def timestamp_of(asked: Asked) -> int:
    """The timestamp to look up; an offset needs only the bounds of the log."""
    return LATEST if asked.offset != NO_OFFSET else asked.timestamp


def fill_in_remote(one: RequestedRewind, result: RemoteOffsets) -> None:
    """Use the offsets that the leader of a partition has reported."""
    found, asked = one.found, one.asked
    found.error_code = result.error
    one.bounds = result.start, result.end
    if asked.offset != NO_OFFSET:
        found.offset = asked.offset
    elif asked.timestamp in (EARLIEST, LATEST):
        found.offset = result.start if asked.timestamp == EARLIEST else result.end
    else:
        found.offset = result.end if result.found == NO_OFFSET else result.found


def rewind(call: GroupPartitionCall, request: RewindConsumerRequest, wanted: list[RequestedRewind]) -> None:
    """Submit the rewind of all partitions."""
    commits = list(committable(call, wanted))
    call.context.groups.submit(
        request.group_id,
        lambda machine, token, now: machine.rewind(request.group_id, commits, token, now),
        call.completion(
            lambda done: answer(request, wanted, done), lambda error: answer(request, wanted, CommitResult(error))
        ),
    )
    call.context.replicas.write_pending()  # after a job or another broker's response no iteration does it


def committable(call: GroupPartitionCall, wanted: list[RequestedRewind]) -> Iterator[PartitionCommit]:
    """Yield the valid offsets, each moved into its log."""
    for one in wanted:
        found, partition = one.found, one.partition
        topic = call.context.tables.topics.get(one.topic)
        if found.error_code or (partition is None and one.bounds is None):
            continue
        if topic is None:  # deleted while other partitions were looked up
            found.error_code = KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        if partition is not None:
            if found.offset == NO_OFFSET:  # no record has that time or a later one
                look_up_offset(found, partition, LATEST, READ_UNCOMMITTED)
            one.bounds = partition.log_start_offset, partition.high_watermark
        assert one.bounds is not None
        start, end = one.bounds
        found.offset = min(max(found.offset, start), end)
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
