"""The errors of a coordination service, with ZooKeeper's codes (KeeperException.java)."""

from typing import ClassVar


class CoordinationError(Exception):
    """An operation failed.

    Arguments:
        path: the node it was about, may be empty.
        at: the index of the failed operation in a `multi`, else 0.
    """

    code: ClassVar[int] = -1
    words: ClassVar[str] = "the operation failed"

    def __init__(self, path: str = "", at: int = 0, detail: str = "") -> None:
        super().__init__(self.words + (f": {path}" if path else "") + (f" ({detail})" if detail else ""))
        self.path = path
        self.at = at


class ConnectionLossError(CoordinationError):
    """The result is unknown: the change may have been made; read the node before a retry."""

    code = -4
    words = "the coordination service is out of reach"


class UnimplementedError(CoordinationError):
    """The service does not support the request."""

    code = -6
    words = "the request is not supported"


class BadArgumentsError(CoordinationError):
    """Not a path, too much data, or an operation that is never possible."""

    code = -8
    words = "the operation makes no sense"


class NoNodeError(CoordinationError):
    """The node, or the parent of a node to create, does not exist."""

    code = -101
    words = "no such node"


class NoAuthError(CoordinationError):
    """The session's identities lack the permission."""

    code = -102
    words = "no permission"


class BadVersionError(CoordinationError):
    """The znode has another version than expected, because it was changed."""

    code = -103
    words = "the node has another version"


class NoChildrenForEphemeralsError(CoordinationError):
    """The parent of a node to create is ephemeral."""

    code = -108
    words = "ephemeral nodes have no children"


class NodeExistsError(CoordinationError):
    """The node to create exists."""

    code = -110
    words = "the node exists"


class NotEmptyError(CoordinationError):
    """The node to delete has children."""

    code = -111
    words = "the node has children"


class SessionExpiredError(CoordinationError):
    """The session has expired, its ephemeral nodes and watches are deleted: rebuild everything."""

    code = -112
    words = "the session is over"


class InvalidAclError(CoordinationError):
    """The service does not support the access control list."""

    code = -114
    words = "the access control list is not supported"


class AuthenticationError(CoordinationError):
    """The service rejects the credentials of the session."""

    code = -115
    words = "the credentials are rejected"


class TlsError(CoordinationError):
    """All servers have rejected TLS, or this side their certificates, before any session was established."""

    code = 0  # no server reports it
    words = "there is no TLS connection"
