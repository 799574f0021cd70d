"""The records of ZooKeeper's protocol as NamedTuples; aiozk declares the types of their fields (zookeeper.jute).

A record has the fields of its declaration in their order; `protocol` checks the number when it is imported.
"""

from typing import NamedTuple

from kafkalite.coordination.tree import Stat

EPHEMERAL, SEQUENCE = 1, 2
"""Bits of `CreateRequest.flags` (CreateMode.java)."""

READ_PERMISSION, ALL_PERMISSIONS = 1, 31


class Id(NamedTuple):
    """An identity of an authentication scheme."""

    scheme: str
    id: str


class Acl(NamedTuple):
    """The permissions of an identity."""

    perms: int
    id: Id


ANYONE = Id("world", "anyone")
OPEN_ACL = (Acl(ALL_PERMISSIONS, ANYONE),)
CREATOR_ACL = (Acl(ALL_PERMISSIONS, Id("auth", "")),)
"""For all; for the authenticated identities of the creator (ZooDefs.Ids)."""


class ConnectRequest(NamedTuple):
    """The first frame of a client; it has no header.

    Attributes:
        protocol_version: 0.
        last_zxid: the last zxid that the client has seen; a server that is behind it rejects the client.
        timeout_ms: the session timeout that the client asks for.
        session_id, password: of the session to continue; 0 and 16 zero bytes = a new session.
        read_only: the client accepts a server without quorum.
    """

    protocol_version: int
    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool


class ConnectResponse(NamedTuple):
    """The first frame of a server; it has no header. `timeout_ms` 0 = the session does not exist."""

    protocol_version: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool


class RequestHeader(NamedTuple):
    """The header of every later request."""

    xid: int
    opcode: int


class ReplyHeader(NamedTuple):
    """The header of every later response and event; `error` 0 = success."""

    xid: int
    zxid: int
    error: int


class CreateRequest(NamedTuple):
    """Create a node; the response has its path."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    flags: int


class Create2Request(NamedTuple):
    """Create a node; the response has its path and Stat."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    flags: int


class DeleteRequest(NamedTuple):
    """Delete a node."""

    path: str
    version: int


class ExistsRequest(NamedTuple):
    """Read the Stat; the error NoNode sets the watch, too."""

    path: str
    watch: bool


class GetDataRequest(NamedTuple):
    """Read data and Stat."""

    path: str
    watch: bool


class SetDataRequest(NamedTuple):
    """Replace the data."""

    path: str
    data: bytes | None
    version: int


class GetAclRequest(NamedTuple):
    """Read the access control list."""

    path: str


class SetAclRequest(NamedTuple):
    """Replace the access control list."""

    path: str
    acl: tuple[Acl, ...]
    version: int


class GetChildrenRequest(NamedTuple):
    """Read the names of the children."""

    path: str
    watch: bool


class GetChildren2Request(NamedTuple):
    """Read the names of the children, and the Stat."""

    path: str
    watch: bool


class SyncRequest(NamedTuple):
    """Wait until the server has applied what the leader had committed."""

    path: str


class PingRequest(NamedTuple):
    """Keep the session."""


class CheckVersionRequest(NamedTuple):
    """Fail the multi unless the node has this version."""

    path: str
    version: int


class MultiRequest(NamedTuple):
    """All operations or none."""

    operations: tuple["OperationRequest", ...]


OperationRequest = CreateRequest | Create2Request | DeleteRequest | SetDataRequest | CheckVersionRequest


class MultiHeader(NamedTuple):
    """The header of each operation and each result of a multi; `done` ends the list."""

    opcode: int
    done: bool
    error: int


class CheckWatchesRequest(NamedTuple):
    """Fail unless a watch of this type exists."""

    path: str
    type: int


class RemoveWatchesRequest(NamedTuple):
    """Remove the watches of this type."""

    path: str
    type: int


class AuthRequest(NamedTuple):
    """Add an identity to the connection; `type` is 0."""

    type: int
    scheme: str
    auth: bytes


class SetWatchesRequest(NamedTuple):
    """Set watches again after a reconnect; those whose node changed after `zxid` fire at once."""

    zxid: int
    data: tuple[str, ...]
    exist: tuple[str, ...]
    child: tuple[str, ...]


class CloseRequest(NamedTuple):
    """End the session."""


class EmptyResponse(NamedTuple):
    """A response without fields."""


class CreateResponse(NamedTuple):
    """The response to CreateRequest."""

    path: str


class Create2Response(NamedTuple):
    """The response to Create2Request."""

    path: str
    stat: Stat


class StatResponse(NamedTuple):
    """The response to ExistsRequest, SetDataRequest and SetAclRequest."""

    stat: Stat


class GetDataResponse(NamedTuple):
    """The response to GetDataRequest."""

    data: bytes | None
    stat: Stat


class GetAclResponse(NamedTuple):
    """The response to GetAclRequest."""

    acl: tuple[Acl, ...]
    stat: Stat


class GetChildrenResponse(NamedTuple):
    """The response to GetChildrenRequest."""

    children: tuple[str, ...]


class GetChildren2Response(NamedTuple):
    """The response to GetChildren2Request."""

    children: tuple[str, ...]
    stat: Stat


class SyncResponse(NamedTuple):
    """The response to SyncRequest."""

    path: str


class OperationError(NamedTuple):
    """The result of an operation in a failed multi: its error, 0 = it was undone, -2 = it was not tried."""

    error: int


class OperationResult(NamedTuple):
    """The result of an operation of a multi.

    Attributes:
        opcode: of the operation; -1 = an error.
        response: the response of this opcode, or an OperationError.
    """

    opcode: int
    response: CreateResponse | Create2Response | StatResponse | EmptyResponse | OperationError


class MultiResponse(NamedTuple):
    """The response to MultiRequest: a result for each operation."""

    results: tuple[OperationResult, ...]


class EventRecord(NamedTuple):
    """An event of a watch, in a frame with the xid -1 and the zxid -1 (WatcherEvent)."""

    type: int
    state: int
    path: str
