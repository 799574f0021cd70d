"""ConsumerGroupDescribe, key 69, v0-1. Consumer groups with their members (KIP-848).

Version notes: v1 type of the member, classic or consumer (KIP-1099).
Source: ConsumerGroupDescribeRequest.json, ConsumerGroupDescribeResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, boolean, field, int8, int16, int32, string, uuid


class ConsumerGroupDescribeRequest(Request, key=69, versions=(0, 1), flexible=0):
    """Groups by name."""

    group_ids: list[string]
    include_authorized_operations: boolean = False


class ConsumerGroupDescribeResponse(Response, key=69, versions=(0, 1), flexible=0):
    """State, epochs and members of each group."""

    class DescribedGroup(Struct):
        class Member(Struct):
            class Assignment(Struct):
                class TopicPartitions(Struct):
                    topic_id: uuid
                    topic_name: string
                    partitions: list[int32]

                topic_partitions: list[TopicPartitions]

            member_id: string
            instance_id: string | None = None
            rack_id: string | None = None
            member_epoch: int32
            client_id: string
            client_host: string
            subscribed_topic_names: list[string]
            subscribed_topic_regex: string | None = None
            assignment: Assignment
            target_assignment: Assignment
            member_type: int8 = field(since=1, default=-1)

        error_code: int16 = 0
        error_message: string | None = None
        group_id: string
        group_state: string
        group_epoch: int32
        assignment_epoch: int32
        assignor_name: string
        members: list[Member]
        authorized_operations: int32 = -(2**31)

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup]
