"""DescribeLogDirs, key 35, v1-5. Log directories and the size of the replicas in them.

Version notes: v2 flexible; v3 top-level error (KIP-784); v4 total and usable bytes (KIP-827); v5 cordoned directories
(KIP-1066).
Source: DescribeLogDirsRequest.json, DescribeLogDirsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, field, int16, int32, int64, string


class DescribeLogDirsRequest(Request, key=35, versions=(1, 5), flexible=2):
    """The requested partitions; null = all."""

    class DescribableLogDirTopic(Struct):
        topic: string
        partitions: list[int32]

    topics: list[DescribableLogDirTopic] | None


class DescribeLogDirsResponse(Response, key=35, versions=(1, 5), flexible=2):
    """Directories, their replicas and sizes."""

    class DescribeLogDirsResult(Struct):
        class DescribeLogDirsTopic(Struct):
            class DescribeLogDirsPartition(Struct):
                partition_index: int32
                partition_size: int64
                offset_lag: int64
                is_future_key: boolean

            name: string
            partitions: list[DescribeLogDirsPartition]

        error_code: int16 = 0
        log_dir: string
        topics: list[DescribeLogDirsTopic]
        total_bytes: int64 = field(since=4, default=-1)
        usable_bytes: int64 = field(since=4, default=-1)
        is_cordoned: boolean = field(since=5, default=False)

    throttle_time_ms: int32 = 0
    error_code: int16 = field(since=3, default=0)
    results: list[DescribeLogDirsResult]
