"""DeleteAcls, key 31, v1-3: deletes the ACLs that filters select. It needs Alter on the cluster."""

from functools import partial

from kafkalite.cluster.acls.store import Deleted
from kafkalite.cluster.changes import Refusal
from kafkalite.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kafkalite.server.requests.call import AdminCall
from kafkalite.server.security.acl_requests import UNKNOWN_ELEMENTS, acl_store, filter_of, has_unknown
from kafkalite.slicing import Steps
from kafkalite.state.authorizer.acls import AclBinding, AclOperation

OBJECTS_EACH = 10  # a change takes some 100 us
Result = DeleteAclsResponse.DeleteAclsFilterResult


def delete_acls(call: AdminCall, request: DeleteAclsRequest) -> None:
    """Delete what the filters select; the response is sent when it is durable."""
    store = acl_store(call.context.authorizer, call.authorization, AclOperation.ALTER)
    if isinstance(store, Refusal):
        refuse(call, request, store)
        return
    filters = [filter_of(each) for each in request.filters]
    if any(map(has_unknown, filters)):
        refuse(call, request, UNKNOWN_ELEMENTS)
        return
    ended = call.guard(partial(answer, call))
    objects = OBJECTS_EACH * len(store.authorizer.patterns) + len(filters)
    call.in_slices(store.delete(filters, ended), objects, lambda _none: None, changes=True)


def refuse(call: AdminCall, request: DeleteAclsRequest, refusal: Refusal) -> None:
    """Answer each filter with an error."""
    count = len(request.filters)

    def build_response() -> Steps:
        results = call.elements()
        for _ in range(count):
            results.add(Result(error_code=refusal.error, error_message=refusal.message, matching_acls=[]))
            yield
        return DeleteAclsResponse(filter_results=results.finish())

    call.answer_from(build_response(), count)


def answer(call: AdminCall, deleted: list[Deleted]) -> None:
    """Send the results, and write the audit log."""
    authorization = call.authorization
    for each in deleted:
        for binding, refusal in each:
            if refusal is None and authorization is not None:
                authorization.log_change("deleted", binding)
    results = [
        Result(error_message=None, matching_acls=[matching(binding, refusal) for binding, refusal in each])
        for each in deleted
    ]
    call.answer(DeleteAclsResponse(filter_results=results))


def matching(binding: AclBinding, refusal: Refusal | None) -> Result.DeleteAclsMatchingAcl:
    (resource_type, name, pattern_type), acl = binding
    return Result.DeleteAclsMatchingAcl(
        error_code=0 if refusal is None else refusal.error,
        error_message=None if refusal is None else refusal.message,
        resource_type=resource_type,
        resource_name=name,
        pattern_type=pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
