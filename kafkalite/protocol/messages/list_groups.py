"""ListGroups, key 16, v0-5. The groups that a broker coordinates.

Version notes: v1 throttle time; v2 throttling before answering; v4 by state (KIP-518); v5 by type (KIP-848).
Source: ListGroupsRequest.json, ListGroupsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, field, int16, int32, string


class ListGroupsRequest(Request, key=16, versions=(0, 5), flexible=3):
    """The requested states and types; empty = all."""

    states_filter: list[string] = field(since=4, factory=list)
    types_filter: list[string] = field(since=5, factory=list)


class ListGroupsResponse(Response, key=16, versions=(0, 5), flexible=3):
    """Groups with their type and state."""

    class ListedGroup(Struct):
        group_id: string
        protocol_type: string
        group_state: string = field(since=4, default="")
        group_type: string = field(since=5, default="")

    throttle_time_ms: int32 = field(since=1, default=0)
    error_code: int16 = 0
    groups: list[ListedGroup]
