"""CreateAcls, key 30, v1-3: stores ACLs. It needs Alter on the cluster.

Any broker writes them; those of a resource pattern are stored all or none. One that exists already is no error.
"""

from collections.abc import Sequence
from functools import partial

from kafkalite.cluster.acls.store import AclStore
from kafkalite.cluster.changes import Refusal
from kafkalite.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kafkalite.server.requests.call import AdminCall
from kafkalite.server.security.acl_requests import acl_store, binding_of, refusal_of_binding
from kafkalite.slicing import Steps
from kafkalite.state.authorizer.acls import AclBinding, AclOperation

OBJECTS_EACH = 10  # a change takes some 100 us
Result = CreateAclsResponse.AclCreationResult


def create_acls(call: AdminCall, request: CreateAclsRequest) -> None:
    """Create the valid ones; the response is sent when they are durable."""
    store = acl_store(call.context.authorizer, call.authorization, AclOperation.ALTER)
    count = len(request.creations)
    if isinstance(store, Refusal):
        call.answer_from(build_response(call, [store] * count), count)
    else:
        call.in_slices(create_valid(call, request, store), OBJECTS_EACH * count, lambda _none: None, changes=True)


def create_valid(call: AdminCall, request: CreateAclsRequest, store: AclStore) -> Steps:
    valid: list[AclBinding] = []
    refusals: list[Refusal | None] = []
    for each in request.creations:
        binding = binding_of(each)
        refusals.append(refusal_of_binding(binding))
        if refusals[-1] is None:
            valid.append(binding)
        yield
    yield from store.create(valid, call.guard(partial(answer, call, valid, refusals)))


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
    found = [next(later) if refusal is None else refusal for refusal in refusals]
    call.answer_from(build_response(call, found), len(found))


def build_response(call: AdminCall, refusals: Sequence[Refusal | None]) -> Steps:
    results = call.elements()
    for each in refusals:
        error, message = (0, None) if each is None else (each.error, each.message)
        results.add(Result(error_code=error, error_message=message))
        yield
    return CreateAclsResponse(results=results.finish())
