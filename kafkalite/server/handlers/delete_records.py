"""DeleteRecords, key 21, v0-2: moves log start offsets forward; -1 means to the high watermark (KIP-107).

A partition with followers is answered when every live replica has moved its log start, at the latest after the timeout
of the request. Source: ReplicaManager.deleteRecords of Apache Kafka 3.9.
"""

from collections.abc import Callable, Generator
from functools import partial

from kafkalite.cluster.partition.leader import Leader
from kafkalite.cluster.partition.log_start_wait import UNKNOWN_LOW_WATERMARK, LogStartWait
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kafkalite.server.requests.call import PartitionCall

TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = TopicResult.DeleteRecordsPartitionResult


class Deletion:
    """The deletion in one partition.

    Arguments:
        index: of the partition.
        error: Kafka error code.
        low_watermark: the lowest log start of the live replicas; -1 with an error.

    Attributes:
        waits: whether a follower still has to move its log start.
        then: called when none has to.
    """

    __slots__ = ("error", "index", "low_watermark", "then", "waits")

    def __init__(self, index: int, error: int, low_watermark: int) -> None:
        self.index = index
        self.error = error
        self.low_watermark = low_watermark
        self.waits = False
        self.then: Callable[[], object] | None = None

    def end(self, error: int, low_watermark: int) -> None:
        """Use the result of the followers."""
        self.error, self.low_watermark, self.waits = error, low_watermark, False
        if self.then is not None:
            self.then()


class DeletedTopic:
    """The deletions in one topic.

    Arguments:
        name: of the topic.
    """

    __slots__ = ("deletions", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.deletions: list[Deletion] = []


def delete_records(call: PartitionCall, request: DeleteRecordsRequest) -> None:
    """Move the log start offset of each partition, and return the new one."""
    objects = sum(1 + len(topic.partitions) for topic in request.topics)
    answer = partial(answer_each, call, objects)
    call.in_slices(delete_each(call, request), objects, partial(await_followers, call, answer), changes=True)


def delete_each(call: PartitionCall, request: DeleteRecordsRequest) -> Generator[None, None, list[DeletedTopic]]:
    topics: list[DeletedTopic] = []
    for topic in request.topics:
        deleted = DeletedTopic(topic.name)
        for asked in topic.partitions:
            deleted.deletions.append(delete_before(call, request, topic.name, asked.partition_index, asked.offset))
            yield
        topics.append(deleted)
    return topics


def delete_before(call: PartitionCall, request: DeleteRecordsRequest, topic: str, index: int, offset: int) -> Deletion:
    """Delete the records of one partition before an offset.

    Arguments:
        call, request: of the client.
        topic, index: of the partition.
        offset: the new log start; -1 = the high watermark.

    Returns the result; with followers it is complete when all live ones have moved their log starts.
    """
    partition = call.context.replicas.partition(topic, b"", index, by_id=False)
    if isinstance(partition, KafkaErrorCode):
        return Deletion(index, partition, UNKNOWN_LOW_WATERMARK)
    target = partition.high_watermark if offset == -1 else offset
    error = partition.delete_records_before(offset)
    if error:
        return Deletion(index, error, UNKNOWN_LOW_WATERMARK)
    deletion = Deletion(index, error, partition.log_start_offset)
    if isinstance(partition.role, Leader) and partition.role.followers:
        deletion.waits = True
        LogStartWait(partition.role, target, deletion.end).start(call.context.clock, request.timeout_ms)
    return deletion


def await_followers(
    call: PartitionCall, answer: Callable[[list[DeletedTopic]], object], topics: list[DeletedTopic]
) -> None:
    """Answer when the followers have moved their log starts, or at the timeout."""
    waiting = [each for topic in topics for each in topic.deletions if each.waits]
    left = len(waiting)

    def one_ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            call.guard(answer)(topics)

    for deletion in waiting:
        deletion.then = one_ended
    if not waiting:
        answer(topics)


def answer_each(call: PartitionCall, objects: int, topics: list[DeletedTopic]) -> None:
    call.answer_from(response_of(call, topics), objects)


def response_of(call: PartitionCall, topics: list[DeletedTopic]) -> Generator[None, None, DeleteRecordsResponse]:
    results = call.elements()
    for topic in topics:
        partitions = call.elements()
        for deletion in topic.deletions:
            partitions.add(result_of(deletion))
            yield
        results.add(TopicResult(name=topic.name, partitions=partitions.finish()), 1 + len(topic.deletions))
        yield
    return DeleteRecordsResponse(topics=results.finish())


def result_of(deletion: Deletion) -> PartitionResult:
    return PartitionResult(
        partition_index=deletion.index, low_watermark=deletion.low_watermark, error_code=deletion.error
    )
