"""DescribeLogDirs, key 35, v1-5: returns the log directories and the size of each replica (KIP-113; disk space:
KIP-827).

The lag of a follower is what it lacks of the records below the high watermark in the last response of its leader; -1 =
it has received none. Apache Kafka computes it with the follower's own high watermark, so it always returns 0.

A partition that is moved (AlterReplicaLogDirs) is listed twice: in its directory, and as future replica in the other
one, with the records that are not copied yet as its lag.
"""

from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafkalite.server.requests.call import PartitionCall
from kafkalite.server.requests.response_arrays import ResponseArray

if TYPE_CHECKING:
    from kafkalite.storage.log_move.log_move import LogMove

Result = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = Result.DescribeLogDirsTopic
Replica = Topic.DescribeLogDirsPartition


def describe_log_dirs(call: PartitionCall, request: DescribeLogDirsRequest) -> None:
    """Describe each log directory. A replica without files is listed as empty in the directory that it would get."""
    if request.topics is None:
        objects = sum(len(hosted.partitions) for hosted in call.context.replicas)
    else:
        objects = sum(1 + len(topic.partitions) for topic in request.topics)
    call.answer_from(build_response(call, request), objects)


def build_response(
    call: PartitionCall, request: DescribeLogDirsRequest
) -> Generator[None, None, DescribeLogDirsResponse]:
    logs = call.context.logs
    fresh = logs.choose_directory()
    held: dict[str, dict[str, ResponseArray]] = defaultdict(lambda: defaultdict(call.elements))
    for partition in wanted_partitions(call, request):
        yield
        if partition is None:
            continue
        key = TopicPartition(partition.topic, partition.index)
        path = logs.created.get(key, fresh) if partition.log is None else partition.log.root
        size = 0 if partition.log is None else partition.log.size
        if path is not None and (partition.log is not None or not partition.error):
            lag = call.context.replica_lag(partition)
            held[path][partition.topic].add(
                Replica(partition_index=partition.index, partition_size=size, offset_lag=lag, is_future_key=False)
            )
        if (move := logs.moves.get(key)) is not None:
            held[move.target][partition.topic].add(future_replica(move))
    return DescribeLogDirsResponse(results=[describe(call, path, held[path]) for path in logs.directories()])


def future_replica(move: "LogMove") -> Replica:
    """The copy of a partition that is being moved."""
    lag = max(move.log.log_end_offset - move.copy.end_offset, 0)
    return Replica(
        partition_index=move.log.partition, partition_size=move.copy.size, offset_lag=lag, is_future_key=True
    )


def wanted_partitions(call: PartitionCall, request: DescribeLogDirsRequest) -> Iterator[Partition | None]:
    """Yield the requested partitions, None for a partition that is not hosted."""
    if request.topics is None:
        for hosted in list(call.context.replicas):
            yield from list(hosted.partitions.values())
        return
    for topic in request.topics:
        for index in topic.partitions:
            partition = call.context.replicas.partition(topic.topic, b"", index, by_id=False)
            yield partition if isinstance(partition, Partition) else None


def describe(call: PartitionCall, path: str, topics: dict[str, ResponseArray]) -> Result:
    logs = call.context.logs
    total_bytes, usable_bytes = -1, -1
    if logs.is_online(path):
        try:
            total_bytes, usable_bytes = logs.space(path)
        except OSError as error:
            logs.take_offline(path, error)
    online = logs.is_online(path)
    return Result(
        error_code=0 if online else KafkaErrorCode.KAFKA_STORAGE_ERROR,
        log_dir=path,
        topics=[Topic(name=name, partitions=replicas.finish()) for name, replicas in sorted(topics.items())],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
