"""What the requests of ACLs have in common: the right to send them, filters, and the validation of new ACLs."""

from collections.abc import Sequence

from kafkalite.cluster.acls.nodes import path_of
from kafkalite.cluster.acls.store import AclStore
from kafkalite.cluster.changes import Refusal
from kafkalite.coordination.errors import BadArgumentsError
from kafkalite.coordination.tree import check_path
from kafkalite.errors import KafkaErrorCode, reason_of
from kafkalite.protocol.messages.create_acls import CreateAclsRequest
from kafkalite.protocol.messages.delete_acls import DeleteAclsRequest
from kafkalite.protocol.messages.describe_acls import DescribeAclsRequest
from kafkalite.server.security.authorization import AuditedAuthorizer, Authorization
from kafkalite.state.authorizer.acls import (
    CLUSTER_NAME,
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    ResourcePattern,
    parse_principal,
)

PATTERN_TYPES = (PatternType.LITERAL, PatternType.PREFIXED)
PERMISSION_TYPES = (PermissionType.ALLOW, PermissionType.DENY)
NO_AUTHORIZER = "No Authorizer is configured."
UNKNOWN_ELEMENTS = Refusal(KafkaErrorCode.INVALID_REQUEST, "The filter contains UNKNOWN elements.")


def acl_store(
    authorizer: AuditedAuthorizer | None, authorization: Authorization | None, operation: AclOperation
) -> AclStore | Refusal:
    """Return the ACLs, or why this client may not use them, or that there are none.

    Arguments:
        authorizer: of the broker.
        authorization: of the client.
        operation: on the cluster: DESCRIBE or ALTER.
    """
    if authorization is not None and not authorization.allows_cluster(operation):
        return Refusal(
            KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED, reason_of(KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        )
    if authorizer is None or authorizer.acls is None:
        return Refusal(KafkaErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return authorizer.acls


def filter_of(request: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    """Return the filter of a request."""
    return AclFilter(
        AclResourceType(request.resource_type_filter),
        request.resource_name_filter,
        PatternType(request.pattern_type_filter),
        request.principal_filter,
        request.host_filter,
        AclOperation(request.operation),
        PermissionType(request.permission_type),
    )


def has_unknown(wanted: AclFilter) -> bool:
    """Return whether a filter has codes that are not known."""
    return not all((wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission))


def binding_of(creation: CreateAclsRequest.AclCreation) -> AclBinding:
    """Return a new ACL of a request."""
    return AclBinding(
        ResourcePattern(
            AclResourceType(creation.resource_type),
            creation.resource_name,
            PatternType(creation.resource_pattern_type),
        ),
        Acl(
            creation.principal,
            creation.host,
            AclOperation(creation.operation),
            PermissionType(creation.permission_type),
        ),
    )


def refusal_of_binding(binding: AclBinding) -> Refusal | None:
    """Return why an ACL cannot be created (AclApis.handleCreateAcls, AclControlManager.validateNewAcl)."""
    text = _first_text(_problems(binding))
    return None if text is None else Refusal(KafkaErrorCode.INVALID_REQUEST, text)


def _problems(binding: AclBinding) -> Sequence[tuple[bool, str]]:
    (resource_type, name, pattern_type), acl = binding
    is_cluster = resource_type is AclResourceType.CLUSTER
    return (
        (is_cluster and name != CLUSTER_NAME, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"),
        (not name, "Invalid empty resource name"),
        (resource_type <= AclResourceType.ANY, f"Invalid resourceType {resource_type.name}"),
        (pattern_type not in PATTERN_TYPES, f"Invalid patternType {pattern_type.name}"),
        (acl.operation <= AclOperation.ANY, f"Invalid operation {acl.operation.name}"),
        (acl.permission not in PERMISSION_TYPES, f"Invalid permissionType {acl.permission.name}"),
        (not _is_principal(acl.principal), f"Could not parse principal from `{acl.principal}`"),
        (not acl.host, "Invalid empty host"),
        ("/" in name or not _is_node(binding.pattern), f"ACL binding contains invalid resource name: {name}"),
    )


def _first_text(problems: Sequence[tuple[bool, str]]) -> str | None:
    return next((text for is_problem, text in problems if is_problem), None)


def _is_principal(text: str) -> bool:
    try:
        parse_principal(text)
    except ValueError:
        return False
    return True


def _is_node(pattern: ResourcePattern) -> bool:
    try:
        check_path(path_of(pattern))
    except BadArgumentsError:
        return False
    return True
