"""DescribeGroups, key 15, v0-6. Classic groups with their members.

Version notes: v1 throttle time; v2 throttling before answering; v3 authorised operations (KIP-430); v4 static members
(KIP-345); v6 error message, and GROUP_ID_NOT_FOUND for unknown groups (KIP-1043).
Source: DescribeGroupsRequest.json, DescribeGroupsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, binary, boolean, field, int16, int32, string


class DescribeGroupsRequest(Request, key=15, versions=(0, 6), flexible=5):
    """Groups by name."""

    groups: list[string]
    include_authorized_operations: boolean = field(since=3, default=False)


class DescribeGroupsResponse(Response, key=15, versions=(0, 6), flexible=5):
    """State, protocol and members of each group."""

    class DescribedGroup(Struct):
        class DescribedGroupMember(Struct):
            member_id: string
            group_instance_id: string | None = field(since=4, default=None)
            client_id: string
            client_host: string
            member_metadata: binary
            member_assignment: binary

        error_code: int16 = 0
        error_message: string | None = field(since=6, default=None)
        group_id: string
        group_state: string
        protocol_type: string
        protocol_data: string
        members: list[DescribedGroupMember]
        authorized_operations: int32 = field(since=3, default=-(2**31))

    throttle_time_ms: int32 = field(since=1, default=0)
    groups: list[DescribedGroup]
