"""The identity that a session presents to ZooKeeper, and the access control lists of the nodes that it creates."""

import ssl
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kafkalite.coordination import znodes
from kafkalite.coordination.zookeeper.records import ANYONE, CREATOR_ACL, OPEN_ACL, READ_PERMISSION, Acl

READABLE_ACL = (*CREATOR_ACL, Acl(READ_PERMISSION, ANYONE))
OPEN_NODE = "/consumers"  # old consumers of Kafka write below it
SENSITIVE = (znodes.USER_CONFIGS, znodes.BROKER_CONFIGS, "/delegation_token/tokens", znodes.SCRAM_SECRET)


class TlsContexts(Protocol):
    """The source of TLS contexts; `net.tls.ReloadedContext`."""

    def get(self) -> ssl.SSLContext:
        """Return the context for the next connection."""


def open_acl(path: str) -> tuple[Acl, ...]:
    """Return the list of nodes that every client may read and change."""
    return OPEN_ACL


def kafka_acl(path: str) -> tuple[Acl, ...]:
    """Return Kafka's list of a node (ZkData.defaultAcls): only its creator changes it, and only its creator reads the
    nodes with passwords and secrets.
    """
    if path == OPEN_NODE:
        return OPEN_ACL
    return CREATOR_ACL if path.startswith(SENSITIVE) else READABLE_ACL


class Access(NamedTuple):
    """The security of a session.

    Attributes:
        tls: contexts of its connections; None = plain text.
        digest: b"user:password", the identity for ZooKeeper's scheme "digest"; None = none.
        acl: returns the list of a node to create, by its path below the chroot.
        identity_settings: names of the settings that give the session an identity, for texts of errors.
    """

    tls: TlsContexts | None = None
    digest: bytes | None = None
    acl: Callable[[str], tuple[Acl, ...]] = open_acl
    identity_settings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Access(tls={self.tls is not None}, digest={self.digest is not None}, acl={self.acl.__name__})"


ANONYMOUS = Access()
