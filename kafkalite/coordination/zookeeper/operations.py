"""Converts operations of the tree to ZooKeeper's requests, and its responses to the results of the tree.

A created node without data has null data, as Kafka's nodes have; `get` returns b"" for null and for empty data.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kafkalite.coordination.errors import BadArgumentsError
from kafkalite.coordination.tree import Check, Create, CreatedNode, Delete, Operation, Result, Set, check_path
from kafkalite.coordination.zookeeper.codec import ProtocolError
from kafkalite.coordination.zookeeper.protocol import error_of
from kafkalite.coordination.zookeeper.records import (
    EPHEMERAL,
    SEQUENCE,
    Acl,
    CheckVersionRequest,
    Create2Request,
    Create2Response,
    DeleteRequest,
    EmptyResponse,
    MultiResponse,
    OperationError,
    OperationRequest,
    SetDataRequest,
    StatResponse,
)

NOT_TRIED = -2
"""Error of the operations behind the one that failed (KeeperException.Code.RUNTIMEINCONSISTENCY)."""

RESPONSES = {Create: Create2Response, Set: StatResponse, Delete: EmptyResponse, Check: EmptyResponse}


class Root(NamedTuple):
    """Where a session has its nodes, and their access control lists.

    Attributes:
        chroot: path on the server of the session's root; "" = the server's root.
        acl: returns the list of a node to create, by its path below the chroot.
    """

    chroot: str
    acl: Callable[[str], tuple[Acl, ...]]

    def server_path(self, path: str) -> str:
        """Return the path on the server. Raises BadArgumentsError: not a path."""
        check_path(path)
        return self.chroot if self.chroot and path == "/" else self.chroot + path

    def path(self, server_path: str) -> str:
        """Return the session's path of one on the server."""
        return server_path.removeprefix(self.chroot) or "/"

    def request(self, operation: Operation) -> OperationRequest:
        """Return the request of an operation. Raises BadArgumentsError."""
        if isinstance(operation, Create):
            # The server appends the number of a sequential node, so the path before it may end with "/".
            suffix = "0" if operation.sequence else ""
            path = self.server_path(operation.path + suffix).removesuffix(suffix)
            flags = EPHEMERAL * operation.ephemeral | SEQUENCE * operation.sequence
            return Create2Request(path, operation.data or None, self.acl(operation.path), flags)
        path = self.server_path(operation.path)
        if isinstance(operation, Set):
            return SetDataRequest(path, operation.data, operation.version)
        if not isinstance(operation, Delete):
            return CheckVersionRequest(path, operation.version)
        if operation.path == "/":
            raise BadArgumentsError("/", detail="the root cannot be deleted")
        return DeleteRequest(path, operation.version)

    def requests(self, operations: Sequence[Operation]) -> tuple[OperationRequest, ...]:
        """Return the requests of a multi. Raises BadArgumentsError with `at` its index."""
        requests = []
        for at, operation in enumerate(operations):
            try:
                requests.append(self.request(operation))
            except BadArgumentsError as error:
                error.at = at
                raise
        return tuple(requests)

    def result(self, response: Any) -> Result:
        """Return the result of an operation that has succeeded."""
        if isinstance(response, Create2Response):
            return CreatedNode(self.path(response.path), response.stat)
        return response.stat if isinstance(response, StatResponse) else None

    def results(self, operations: Sequence[Operation], response: MultiResponse) -> list[Result]:
        """Return the results of a multi.

        Raises:
            CoordinationError: of the operation that has failed, with `at` its index.
            ProtocolError: the response is not one to these operations.
        """
        if len(response.results) != len(operations):
            raise ProtocolError(f"{len(response.results)} results of {len(operations)} operations")
        for at, (operation, result) in enumerate(zip(operations, response.results, strict=True)):
            if isinstance(result.response, OperationError):
                if result.response.error not in (0, NOT_TRIED):
                    raise error_of(result.response.error, operation.path, at)
            elif not isinstance(result.response, RESPONSES[type(operation)]):
                raise ProtocolError(f"the result of a {type(operation).__name__} has the opcode {result.opcode}")
        return [self.result(each.response) for each in response.results]
