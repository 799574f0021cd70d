"""DeleteGroups, key 42, v0-2. Removes groups without members, with their offsets (KIP-229).

Version notes: v1 throttling before answering.
Source: DeleteGroupsRequest.json, DeleteGroupsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, int16, int32, string


class DeleteGroupsRequest(Request, key=42, versions=(0, 2), flexible=2):
    """Groups by name."""

    groups_names: list[string]


class DeleteGroupsResponse(Response, key=42, versions=(0, 2), flexible=2):
    """The error of each group, 0 = none."""

    class DeletableGroupResult(Struct):
        group_id: string
        error_code: int16 = 0

    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult]
