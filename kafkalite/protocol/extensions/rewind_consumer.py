"""RewindConsumer, key 10005, v0. Sets the committed offsets of a group, also while it has members."""

from kafkalite.protocol.schema import Request, Response, Struct, int16, int32, int64, string


class RewindConsumerRequest(Request, key=10005, versions=(0, 0), flexible=0):
    """The new positions.

    Attributes:
        group_id: the group.
        topics: the topics to rewind.
    """

    class RewoundTopic(Struct):
        """One topic.

        Attributes:
            name: the topic.
            partitions: the partitions to rewind.
        """

        class RewoundPartition(Struct):
            """One partition: an offset, or a timestamp if the offset is -1.

            Attributes:
                partition_index: the partition index.
                offset: the offset to continue at, -1 = by timestamp.
                timestamp: continue at the first record of this time or later, in ms; -2 = earliest, -1 = log end.
            """

            partition_index: int32
            offset: int64 = -1
            timestamp: int64 = -1

        name: string
        partitions: list[RewoundPartition]

    group_id: string
    topics: list[RewoundTopic]


class RewindConsumerResponse(Response, key=10005, versions=(0, 0), flexible=0):
    """The committed offsets.

    Attributes:
        topics: the topics of the request.
    """

    class RewoundTopic(Struct):
        """One topic.

        Attributes:
            name: the topic.
            partitions: its partitions.
        """

        class RewoundPartition(Struct):
            """One partition.

            Attributes:
                partition_index: the partition index.
                offset: the committed offset, -1 with an error.
                error_code: the error, 0 = none.
            """

            partition_index: int32
            offset: int64 = -1
            error_code: int16 = 0

        name: string
        partitions: list[RewoundPartition]

    topics: list[RewoundTopic]
