"""DeleteAcls, key 31, v1-3. Deletes the ACLs that match filters (KIP-140).

Version notes: v1 pattern type (KIP-290); v2 flexible; v3 resource type user (KIP-373).
Source: DeleteAclsRequest.json, DeleteAclsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, int8, int16, int32, string


class DeleteAclsRequest(Request, key=31, versions=(1, 3), flexible=2):
    """The filters; null matches any value."""

    class DeleteAclsFilter(Struct):
        resource_type_filter: int8
        resource_name_filter: string | None
        pattern_type_filter: int8 = 3
        principal_filter: string | None
        host_filter: string | None
        operation: int8
        permission_type: int8

    filters: list[DeleteAclsFilter]


class DeleteAclsResponse(Response, key=31, versions=(1, 3), flexible=2):
    """The deleted ACLs of each filter, in the order of the request."""

    class DeleteAclsFilterResult(Struct):
        class DeleteAclsMatchingAcl(Struct):
            error_code: int16 = 0
            error_message: string | None
            resource_type: int8
            resource_name: string
            pattern_type: int8 = 3
            principal: string
            host: string
            operation: int8
            permission_type: int8

        error_code: int16 = 0
        error_message: string | None
        matching_acls: list[DeleteAclsMatchingAcl]

    throttle_time_ms: int32 = 0
    filter_results: list[DeleteAclsFilterResult]
