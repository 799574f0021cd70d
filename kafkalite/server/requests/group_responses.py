"""Builds responses about many groups: queried and encoded over several loop iterations."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

from kafkalite.coordinators.group.service import Machines
from kafkalite.server.requests.call import GroupCall
from kafkalite.state.authorizer.acls import AclOperation, AclResourceType
from kafkalite.state.groups.machine import GroupMachine


def encode_groups(
    call: GroupCall, query: Callable[[GroupMachine], Iterator[Any]], others: Iterable[Any] = ()
) -> Generator[None, None, tuple[list[Any], Machines]]:
    """Return the groups of all shards as an array of the response, and the machines that were queried.

    Arguments:
        call: the request.
        query: yields the structs of the groups of a shard.
        others: structs of groups that other brokers coordinate.
    """
    array = call.elements()
    machines = yield from call.context.groups.query_all_shards(query, array.add)
    for each in others:
        array.add(each)
        yield
    return array.finish(), machines


def answer_each(
    call: GroupCall,
    names: Sequence[str],
    describe: Callable[[str, GroupMachine], Any],
    refused: Callable[[str, int], Any],
    response: Callable[..., Any],
) -> None:
    """Send a response with one struct per group, in the order of `names`.

    Arguments:
        call: the request.
        names: of the groups.
        describe: returns the struct of a group from its shard.
        refused: returns the struct of a group whose shard fails with an error.
        response: the class of the response, whose array is `groups`.
    """

    def found(groups: list[Any]) -> None:
        call.answer_from(build_response(call, groups, response), len(groups))

    steps = call.context.groups.query_each(names, str, describe, refused, call.guard(found))
    call.in_slices(steps, len(names), ended)


def build_response(call: GroupCall, groups: list[Any], response: Callable[..., Any]) -> Generator[None, None, Any]:
    """Build the response; each struct is freed as soon as it is encoded."""
    array = call.elements()
    groups.reverse()
    while groups:
        array.add(groups.pop())
        yield
    return response(groups=array.finish())


def shown_groups(call: GroupCall) -> Callable[[str], bool]:
    """Return the function that decides whether a list has a group: all of them for clients that may describe the
    cluster, else those that the client may describe.
    """
    authorization = call.authorization
    if authorization is None or authorization.allows_cluster(AclOperation.DESCRIBE, log_denied=False):
        return lambda _group: True
    return lambda group: authorization.allows(AclOperation.DESCRIBE, AclResourceType.GROUP, group, log_denied=False)


def ended(_steps: None) -> None:
    """Do nothing: all groups are queried, and the responses follow."""
