"""DeleteGroup, key 10002, v0: deletes groups without members, with all their offsets, as DeleteGroups does."""

from kafkalite.protocol.extensions.delete_group import DeleteGroupRequest, DeleteGroupResponse
from kafkalite.server.requests.call import GroupCall
from kafkalite.server.requests.group_responses import ended

Deleted = DeleteGroupResponse.DeletedGroup


def delete_group(call: GroupCall, request: DeleteGroupRequest) -> None:
    """Delete each group independently."""
    names = request.groups

    def deleted(errors: list[int]) -> None:
        results = [Deleted(group_id=name, error_code=error) for name, error in zip(names, errors, strict=True)]
        call.answer(DeleteGroupResponse(results=results))

    call.in_slices(call.context.groups.delete(names, call.guard(deleted)), len(names), ended)
