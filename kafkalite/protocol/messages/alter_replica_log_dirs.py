"""AlterReplicaLogDirs, key 34, v1-2. Moves replicas between the log directories of a broker (KIP-113).

Version notes: v2 flexible.
Source: AlterReplicaLogDirsRequest.json, AlterReplicaLogDirsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, int16, int32, string


class AlterReplicaLogDirsRequest(Request, key=34, versions=(1, 2), flexible=2):
    """The log directories and their new replicas."""

    class AlterReplicaLogDir(Struct):
        class AlterReplicaLogDirTopic(Struct):
            name: string
            partitions: list[int32]

        path: string
        topics: list[AlterReplicaLogDirTopic]

    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDirsResponse(Response, key=34, versions=(1, 2), flexible=2):
    """An error per replica."""

    class AlterReplicaLogDirTopicResult(Struct):
        class AlterReplicaLogDirPartitionResult(Struct):
            partition_index: int32
            error_code: int16 = 0

        topic_name: string
        partitions: list[AlterReplicaLogDirPartitionResult]

    throttle_time_ms: int32 = 0
    results: list[AlterReplicaLogDirTopicResult]
