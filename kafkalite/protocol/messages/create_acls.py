"""CreateAcls, key 30, v1-3. Creates ACLs (KIP-140).

Version notes: v1 pattern type (KIP-290); v2 flexible; v3 resource type user (KIP-373).
Source: CreateAclsRequest.json, CreateAclsResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, Struct, int8, int16, int32, string


class CreateAclsRequest(Request, key=30, versions=(1, 3), flexible=2):
    """The ACLs."""

    class AclCreation(Struct):
        resource_type: int8
        resource_name: string
        resource_pattern_type: int8 = 3
        principal: string
        host: string
        operation: int8
        permission_type: int8

    creations: list[AclCreation]


class CreateAclsResponse(Response, key=30, versions=(1, 3), flexible=2):
    """An error per ACL, in the order of the request."""

    class AclCreationResult(Struct):
        error_code: int16 = 0
        error_message: string | None

    throttle_time_ms: int32 = 0
    results: list[AclCreationResult]
