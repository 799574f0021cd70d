"""RegisterConsumer, key 10003, v0. Registers a member for the next generation and returns its partitions."""

from kafkalite.protocol.schema import Request, Response, Struct, int16, int32, int64, string


class RegisterConsumerRequest(Request, key=10003, versions=(0, 0), flexible=0):
    """The registering consumer. The response waits until all members have registered, or for the rebalance timeout.

    Attributes:
        group_id: the group.
        consumer_id: the consumer id, chosen by the client.
        topics: the topics that the consumer reads; none means those of the definition, or nothing but what it claims.
        claimed_partitions: partitions that the consumer takes statically; they are left out of the assignment.
        session_timeout_ms: how long the consumer may be silent, in milliseconds; 0 means as the definition says.
        rebalance_timeout_ms: how long the others wait for this consumer to register again, in milliseconds.
    """

    class ClaimedTopic(Struct):
        """One topic.

        Attributes:
            name: the topic.
            partitions: the numbers of the partitions.
        """

        name: string
        partitions: list[int32]

    group_id: string
    consumer_id: string
    topics: list[string]
    claimed_partitions: list[ClaimedTopic]
    session_timeout_ms: int32
    rebalance_timeout_ms: int32


class RegisterConsumerResponse(Response, key=10003, versions=(0, 0), flexible=0):
    """The generation, and what the consumer owns in it.

    Attributes:
        error_code: the error, or 0 if there was none.
        generation_id: the generation.
        partitions: what the consumer owns, by topic.
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
                partition_index: the number of the partition.
                start_offset: where to begin; -1 leaves it to the client's reset policy.
            """

            partition_index: int32
            start_offset: int64 = -1

        name: string
        partitions: list[OwnedPartition]

    error_code: int16 = 0
    generation_id: int32 = -1
    partitions: list[OwnedTopic]
