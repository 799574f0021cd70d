"""DeleteGroups, key 42, v0-2: deletes groups without members, with all their offsets (KIP-229)."""

from collections.abc import Generator

from kafkalite.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafkalite.server.requests.call import GroupCall
from kafkalite.server.requests.group_responses import ended

Result = DeleteGroupsResponse.DeletableGroupResult


def delete_groups(call: GroupCall, request: DeleteGroupsRequest) -> None:
    """Delete each group independently; the groups of one shard are deleted by one batch."""
    names = list(dict.fromkeys(request.groups_names))  # each once, as in Kafka

    def deleted(errors: list[int]) -> None:
        call.answer_from(answer(call, names, errors), len(names))

    call.in_slices(call.context.groups.delete(names, call.guard(deleted)), len(names), ended)


def answer(call: GroupCall, names: list[str], errors: list[int]) -> Generator[None, None, DeleteGroupsResponse]:
    """Build the response from one error per group."""
    results = call.elements()
    for name, error in zip(names, errors, strict=True):
        results.add(Result(group_id=name, error_code=error))
        yield
    return DeleteGroupsResponse(results=results.finish())
