"""ListSegments, key 10006, v0. Lists the segments of partitions with their sizes and largest timestamps."""

from kafkalite.protocol.schema import Request, Response, Struct, int16, int32, int64, string


class ListSegmentsRequest(Request, key=10006, versions=(0, 0), flexible=0):
    """The partitions, which the broker must lead.

    Attributes:
        max_segments: largest number of segments in the response; the broker returns at most 10000.
        topics: the topics.
    """

    class SegmentsTopic(Struct):
        """One topic.

        Attributes:
            name: the topic.
            partitions: its partitions.
        """

        class SegmentsPartition(Struct):
            """One partition.

            Attributes:
                partition_index: the partition index.
                start_offset: the first listed segment is the last one that begins at this offset or below.
            """

            partition_index: int32
            start_offset: int64 = 0

        name: string
        partitions: list[SegmentsPartition]

    max_segments: int32 = 10000
    topics: list[SegmentsTopic]


class ListSegmentsResponse(Response, key=10006, versions=(0, 0), flexible=0):
    """The segments, by ascending offset.

    Attributes:
        topics: the topics of the request.
    """

    class SegmentsTopic(Struct):
        """One topic.

        Attributes:
            name: the topic.
            partitions: its partitions.
        """

        class SegmentsPartition(Struct):
            """One partition.

            Attributes:
                partition_index: the partition index.
                error_code: the error, 0 = none.
                log_start_offset: the first offset; the first segment may begin below it.
                log_end_offset: the end of the log for consumers: its high watermark.
                next_offset: base offset of the first segment that did not fit into the response, -1 = none.
                segments: the segments.
            """

            class Segment(Struct):
                """One segment.

                Attributes:
                    base_offset: the offset at which it begins.
                    size: its size in bytes.
                    max_timestamp: the largest timestamp of a record in it, in ms since 1970, -1 = it has no record.
                """

                base_offset: int64
                size: int64
                max_timestamp: int64 = -1

            partition_index: int32
            error_code: int16 = 0
            log_start_offset: int64 = -1
            log_end_offset: int64 = -1
            next_offset: int64 = -1
            segments: list[Segment]

        name: string
        partitions: list[SegmentsPartition]

    topics: list[SegmentsTopic]
