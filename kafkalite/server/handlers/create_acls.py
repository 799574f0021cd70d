"""CreateAcls, key 30, v1-3: stores ACLs. It needs Alter on the cluster.

Any broker writes them; those of a resource pattern are stored all or none. One that exists already is no error.
"""

from functools import partial

from kafkalite.cluster.changes import Refusal
from kafkalite.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kafkalite.server.requests.call import AdminCall
from kafkalite.server.security.acl_requests import acl_store, binding_of, refusal_of_binding
from kafkalite.state.authorizer.acls import AclBinding, AclOperation

OBJECTS_EACH = 10  # a change takes some 100 us
Result = CreateAclsResponse.AclCreationResult


def create_acls(call: AdminCall, request: CreateAclsRequest) -> None:
    """Create the valid ones; the response is sent when they are durable."""
    store = acl_store(call.context.authorizer, call.authorization, AclOperation.ALTER)
    bindings = [binding_of(each) for each in request.creations]
    if isinstance(store, Refusal):
        call.answer(response_of([store] * len(bindings)))
        return
    refusals = [refusal_of_binding(binding) for binding in bindings]
    valid = [binding for binding, refusal in zip(bindings, refusals, strict=True) if refusal is None]
    ended = call.guard(partial(answer, call, valid, refusals))
    call.in_slices(store.create(valid, ended), OBJECTS_EACH * len(valid), lambda _none: None, changes=True)


def answer(
    call: AdminCall, valid: list[AclBinding], refusals: list[Refusal | None], ends: list[Refusal | None]
) -> None:
    """Send the results, and write the audit log.

    Arguments:
        call: of the request.
        valid: the ACLs that could be stored.
        refusals: those of validation, one per ACL of the request.
        ends: the results of the valid ones.
    """
    authorization = call.authorization
    for binding, end in zip(valid, ends, strict=True):
        if end is None and authorization is not None:
            authorization.log_change("created", binding)
    later = iter(ends)
    call.answer(response_of([next(later) if refusal is None else refusal for refusal in refusals]))


def response_of(refusals: list[Refusal | None] | list[Refusal]) -> CreateAclsResponse:
    results = [
        Result(error_message=None) if each is None else Result(error_code=each.error, error_message=each.message)
        for each in refusals
    ]
    return CreateAclsResponse(results=results)
