"""AlterReplicaLogDirs, key 34, v1-2: moves partitions between the log directories of this broker (KIP-113).

The response says that the moves have begun; DescribeLogDirs shows their progress. The decisions are made by
`server/hosting/replica_moves`.
"""

from collections.abc import Generator
from functools import partial

from kafkalite.callbacks import FanIn
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kafkalite.server.requests.call import PartitionCall

TopicResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
PartitionResult = TopicResult.AlterReplicaLogDirPartitionResult


def alter_replica_log_dirs(call: PartitionCall, request: AlterReplicaLogDirsRequest) -> None:
    """Begin every move; answer when all have begun. Of several directories for a partition the last one counts."""
    paths = {
        TopicPartition(topic.name, index): each.path
        for each in request.dirs
        for topic in each.topics
        for index in topic.partitions
    }

    def begun(errors: list[int]) -> None:
        call.answer_from(build_response(call, list(paths), errors), len(paths))

    results: FanIn[int] = FanIn(len(paths), call.guard(begun))
    call.in_slices(moving(call, paths, results), len(paths), lambda _: None, changes=True)


def moving(call: PartitionCall, paths: dict[TopicPartition, str], results: FanIn[int]) -> Generator[None, None, None]:
    for index, (key, path) in enumerate(paths.items()):
        call.context.replica_moves.move(key, path, partial(results.put, index))
        yield


def build_response(
    call: PartitionCall, keys: list[TopicPartition], errors: list[int]
) -> Generator[None, None, AlterReplicaLogDirsResponse]:
    by_topic: dict[str, list[PartitionResult]] = {}
    for key, error in zip(keys, errors, strict=True):
        by_topic.setdefault(key.topic, []).append(PartitionResult(partition_index=key.partition, error_code=error))
        yield
    results = call.elements()
    for name, partitions in by_topic.items():
        results.add(TopicResult(topic_name=name, partitions=partitions))
        yield
    return AlterReplicaLogDirsResponse(results=results.finish())
