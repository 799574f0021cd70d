"""DescribeAcls, key 29, v1-3: returns the ACLs that a filter selects. It needs Describe on the cluster."""

from collections.abc import Generator

from kafkalite.cluster.acls.store import AclStore
from kafkalite.cluster.changes import Refusal
from kafkalite.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kafkalite.server.requests.call import AdminCall
from kafkalite.server.security.acl_requests import UNKNOWN_ELEMENTS, acl_store, filter_of, has_unknown
from kafkalite.state.authorizer.acls import Acl, AclFilter, AclOperation, ResourcePattern

Resource = DescribeAclsResponse.DescribeAclsResource


def describe_acls(call: AdminCall, request: DescribeAclsRequest) -> None:
    """Describe the ACLs of each resource pattern."""
    store = acl_store(call.context.authorizer, call.authorization, AclOperation.DESCRIBE)
    wanted = filter_of(request)
    if isinstance(store, Refusal):
        call.answer(refuse(store))
    elif has_unknown(wanted):
        call.answer(refuse(UNKNOWN_ELEMENTS))
    else:
        call.answer_from(build_response(call, store, wanted), store.authorizer.count)


def build_response(call: AdminCall, store: AclStore, wanted: AclFilter) -> Generator[None, None, DescribeAclsResponse]:
    selected: dict[ResourcePattern, list[Acl]] = {}
    for pattern, acl in list(store.authorizer.acls(wanted)):
        selected.setdefault(pattern, []).append(acl)
        yield
    resources = call.elements()
    for pattern in sorted(selected):
        entries = [
            Resource.AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
            )
            for acl in sorted(selected[pattern])
        ]
        resource_type, name, pattern_type = pattern
        resource = Resource(resource_type=resource_type, resource_name=name, pattern_type=pattern_type, acls=entries)
        resources.add(resource, 1 + len(entries))
        yield
    return DescribeAclsResponse(error_message=None, resources=resources.finish())


def refuse(refusal: Refusal) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=refusal.error, error_message=refusal.message, resources=[])
