"""Executes the requests of ZooKeeper's protocol on a tree: conversions without connections, sessions or time."""

from collections.abc import Callable, Sequence
from typing import Any

from kafkalite.coordination.errors import (
    BadArgumentsError,
    CoordinationError,
    InvalidAclError,
    NoNodeError,
    UnimplementedError,
)
from kafkalite.coordination.tree import (
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    Check,
    Create,
    CreatedNode,
    Delete,
    Operation,
    Result,
    Set,
    Tree,
    Watcher,
    WatchEvent,
)
from kafkalite.coordination.zookeeper import protocol, records
from kafkalite.coordination.zookeeper.operations import NOT_TRIED

OPERATIONS_MAX = 2000
"""Operations of a multi, which is one step of the loop: some 6 us each."""
WATCHES_MAX, ALL_WATCHES_MAX = 100_000, 1_000_000
"""Watches of one session, and of all sessions together, of each type."""
TREE_BYTES_MAX = 512 * 1024 * 1024
"""Memory of the nodes, about; only deletions are possible above."""
NAME_BYTES = 64
"""Memory of a name in a list of children, about."""


def operation_of(request: records.OperationRequest) -> Operation:
    """Return the operation of the tree. Raises InvalidAclError, UnimplementedError."""
    if isinstance(request, records.CreateRequest | records.Create2Request):
        check_acl(request.path, request.acl)
        if request.flags & ~(records.EPHEMERAL | records.SEQUENCE):
            raise UnimplementedError(request.path, detail="containers and nodes with a time to live")
        ephemeral, sequence = bool(request.flags & records.EPHEMERAL), bool(request.flags & records.SEQUENCE)
        return Create(request.path, request.data or b"", ephemeral, sequence)
    if isinstance(request, records.SetDataRequest):
        return Set(request.path, request.data or b"", request.version)
    operation = Delete if isinstance(request, records.DeleteRequest) else Check
    return operation(request.path, request.version)


def operations_of(requests: Sequence[records.OperationRequest]) -> list[Operation]:
    """Return the operations of a multi. Raises CoordinationError with `at` its index."""
    if len(requests) > OPERATIONS_MAX:
        raise BadArgumentsError(detail=f"the multi has {len(requests):,} operations, the limit is {OPERATIONS_MAX:,}")
    operations = []
    for at, request in enumerate(requests):
        try:
            operations.append(operation_of(request))
        except CoordinationError as error:
            error.at = at
            raise
    return operations


def check_space(tree: Tree, operations: Sequence[Operation]) -> None:
    """Raise BadArgumentsError if a change would let a tree grow that is too large."""
    if tree.bytes >= TREE_BYTES_MAX and any(isinstance(each, Create | Set) for each in operations):
        raise BadArgumentsError(detail=f"the tree has {tree.bytes:,} bytes, the limit is {TREE_BYTES_MAX:,}")


def check_acl(path: str, acl: Sequence[records.Acl]) -> None:
    """Accept only the open list: no other one would be enforced. Raises InvalidAclError."""
    if tuple(acl) != records.OPEN_ACL:
        raise InvalidAclError(path, detail="the brokers of one machine have no access control")


def response_of(request: records.OperationRequest, result: Result) -> Any:
    """Return the response with the result of an operation."""
    if isinstance(result, CreatedNode):
        if isinstance(request, records.CreateRequest):
            return records.CreateResponse(result.path)
        return records.Create2Response(*result)
    return records.EmptyResponse() if result is None else records.StatResponse(result)


def multi_response(request: records.MultiRequest, results: Sequence[Result]) -> records.MultiResponse:
    """Return the response to a multi that was executed."""
    pairs = zip(request.operations, results, strict=True)
    return records.MultiResponse(
        tuple(records.OperationResult(protocol.OPCODES[type(each)], response_of(each, one)) for each, one in pairs)
    )


def multi_failure(request: records.MultiRequest, error: CoordinationError) -> records.MultiResponse:
    """Return the response to a multi that has failed: 0 before the failed operation, -2 behind it."""
    behind = len(request.operations) - error.at - 1
    codes = [0] * error.at + [error.code] + [NOT_TRIED] * behind
    return records.MultiResponse(
        tuple(records.OperationResult(protocol.ERROR_OPCODE, records.OperationError(code)) for code in codes)
    )


# Reads.


def get(tree: Tree, request: records.GetDataRequest, watch: Watcher | None, session: int) -> Any:
    """Return data and Stat."""
    return records.GetDataResponse(*tree.get(request.path, watch, session))


def exists(tree: Tree, request: records.ExistsRequest, watch: Watcher | None, session: int) -> Any:
    """Return the Stat; the watch is set, too, if there is no node."""
    stat = tree.exists(request.path, watch, session)
    if stat is None:
        raise NoNodeError(request.path)
    return records.StatResponse(stat)


def children(tree: Tree, request: records.GetChildrenRequest, watch: Watcher | None, session: int) -> Any:
    """Return the names of the children."""
    return records.GetChildrenResponse(tuple(tree.children(request.path, watch, session)[0]))


def children_and_stat(tree: Tree, request: records.GetChildren2Request, watch: Watcher | None, session: int) -> Any:
    """Return the names of the children, and the Stat."""
    names, stat = tree.children(request.path, watch, session)
    return records.GetChildren2Response(tuple(names), stat)


def acl(tree: Tree, request: records.GetAclRequest, watch: Watcher | None, session: int) -> Any:
    """Return the open list, which every node has."""
    return records.GetAclResponse(records.OPEN_ACL, tree.get(request.path)[1])


def set_acl(tree: Tree, request: records.SetAclRequest, watch: Watcher | None, session: int) -> Any:
    """Accept the list that the node has already."""
    check_acl(request.path, request.acl)
    return records.StatResponse(tree.get(request.path)[1])


def sync(tree: Tree, request: records.SyncRequest, watch: Watcher | None, session: int) -> Any:
    """Return the path: there is one server, and every response waits for the changes before it."""
    return records.SyncResponse(request.path)


READS: dict[Any, Callable[[Tree, Any, Watcher | None, int], Any]] = {
    records.GetDataRequest: get,
    records.ExistsRequest: exists,
    records.GetChildrenRequest: children,
    records.GetChildren2Request: children_and_stat,
    records.GetAclRequest: acl,
    records.SetAclRequest: set_acl,
    records.SyncRequest: sync,
}


def bytes_of(response: Any) -> int:
    """Return the memory of a response while it is open, about, in bytes."""
    if isinstance(response, records.GetDataResponse):
        return len(response.data or b"")
    if isinstance(response, records.GetChildrenResponse | records.GetChildren2Response):
        return NAME_BYTES * len(response.children)
    return 0


def check_watches(tree: Tree, session: int, more: int = 1) -> None:
    """Raise BadArgumentsError if a session may not set so many more watches."""
    count = max(tree.data_watches.count(session), tree.child_watches.count(session))
    if count + more > WATCHES_MAX:
        raise BadArgumentsError(detail=f"the session has {count:,} watches, the limit is {WATCHES_MAX:,}")
    everyone = max(tree.data_watches.total, tree.child_watches.total)
    if everyone + more > ALL_WATCHES_MAX:
        raise BadArgumentsError(detail=f"all sessions have {everyone:,} watches, the limit is {ALL_WATCHES_MAX:,}")


def set_watches(tree: Tree, request: records.SetWatchesRequest, watch: Watcher, session: int) -> list[WatchEvent]:
    """Set watches again; returns the events of those that fire at once (DataTree.setWatches).

    Raises BadArgumentsError: too many watches, or not a path.
    """
    check_watches(tree, session, len(request.data) + len(request.exist) + len(request.child))
    missed: list[WatchEvent] = []
    for path in request.data:
        node = tree.find(path)
        if node is None:
            missed.append(WatchEvent(DELETED, path))
        elif node.mzxid > request.zxid:
            missed.append(WatchEvent(CHANGED, path))
        else:
            tree.get(path, watch, session)
    for path in request.exist:
        if tree.exists(path) is not None:
            missed.append(WatchEvent(CREATED, path))
        else:
            tree.exists(path, watch, session)
    for path in request.child:
        node = tree.find(path)
        if node is None:
            missed.append(WatchEvent(DELETED, path))
        elif node.pzxid > request.zxid:
            missed.append(WatchEvent(CHILDREN, path))
        else:
            tree.children(path, watch, session)
    return missed
