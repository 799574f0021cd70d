"""DescribeAcls, key 29, v1-3. Lists the ACLs that match a filter (KIP-140).

Version notes: v1 pattern type (KIP-290); v2 flexible; v3 resource type user (KIP-373).
Source: DescribeAclsRequest.json, DescribeAclsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, int8, int16, int32, string


class DescribeAclsRequest(Request, key=29, versions=(1, 3), flexible=2):
    """The filter; null matches any value."""

    resource_type_filter: int8
    resource_name_filter: string | None
    pattern_type_filter: int8 = 3
    principal_filter: string | None
    host_filter: string | None
    operation: int8
    permission_type: int8


class DescribeAclsResponse(Response, key=29, versions=(1, 3), flexible=2):
    """The ACLs of each resource pattern."""

    class DescribeAclsResource(Struct):
        class AclDescription(Struct):
            principal: string
            host: string
            operation: int8
            permission_type: int8

        resource_type: int8
        resource_name: string
        pattern_type: int8 = 3
        acls: list[AclDescription]

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None
    resources: list[DescribeAclsResource]
