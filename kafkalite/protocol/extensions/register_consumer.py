"""RegisterConsumer, key 10003, v0. Registers a member for the next generation and returns its partitions."""

from kafkalite.protocol.schema import ZERO_UUID, Request, Response, Struct, field, int16, int32, int64, string, uuid


class RegisterConsumerRequest(Request, key=10003, versions=(0, 0), flexible=0):
    """The registering consumer. The response is delayed until all members have registered, or by the rebalance timeout.

    Attributes:
        group_id: the group.
        consumer_id: the consumer id, chosen by the client.
        topics: the topics that the consumer reads; empty = those of the definition, or only the claimed partitions.
        claimed_partitions: static claims; these partitions are excluded from the assignment.
        session_timeout_ms: the session timeout, in milliseconds; 0 = that of the definition.
        rebalance_timeout_ms: time in which this consumer must register again in a rebalance, in milliseconds.
        process_id: random id of the process; of two processes with one consumer id the older is fenced. Zeros = none.
        assignor: partition assignor of a group that this request creates: range, roundrobin, sticky or uniform.
    """

    class ClaimedTopic(Struct):
        """One topic.

        Attributes:
            name: the topic.
            partitions: the partition indexes.
        """

        name: string
        partitions: list[int32]

    group_id: string
    consumer_id: string
    topics: list[string]
    claimed_partitions: list[ClaimedTopic]
    session_timeout_ms: int32
    rebalance_timeout_ms: int32
    process_id: uuid = field(tag=0, default=ZERO_UUID)
    assignor: string | None = field(tag=1, default=None)


class RegisterConsumerResponse(Response, key=10003, versions=(0, 0), flexible=0):
    """The generation, and the partitions of the consumer.

    Attributes:
        error_code: the error, 0 = none.
        generation_id: the generation.
        partitions: the partitions of the consumer, by topic.
    """

    class OwnedTopic(Struct):
        """One topic.

        Attributes:
            name: the topic.
            partitions: its partitions.
        """

        class OwnedPartition(Struct):
            """One partition.

            Attributes:
                partition_index: the partition index.
                start_offset: the offset to start at; -1 = by the reset policy of the client.
            """

            partition_index: int32
            start_offset: int64 = -1

        name: string
        partitions: list[OwnedPartition]

    error_code: int16 = 0
    generation_id: int32 = -1
    partitions: list[OwnedTopic]
