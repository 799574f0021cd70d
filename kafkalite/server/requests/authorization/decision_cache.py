"""What the principal of a connection may do. The allowed decisions of the current ACLs are kept per connection.

1. A decision is kept with the version of the ACLs: any change of an ACL drops all of them, also from the sets that
   requests which still wait have taken from `kept`.
2. Only allowed decisions are kept, so each refused request is decided, and logged, again.
3. While the audit log has allowed decisions (DEBUG), none is kept.
4. All connections together keep `KEPT_BYTES_MAX` bytes, until they are closed: a client with a right on `*` can ask
   about 20,000 names on each of its connections, which need not exist. Further decisions are made again each time.
"""

import logging
import sys
from typing import Any

from kafkalite._speedups.net.framing import Connection
from kafkalite.model import ANONYMOUS, Principal
from kafkalite.server.security.audit_log import LOGGER
from kafkalite.server.security.authorization import AuditedAuthorizer, Authorization
from kafkalite.state.authorizer.acls import NAME_CHARACTERS_MAX, AclOperation, AclResourceType

KEPT_NAMES_MAX = 20_000  # per connection
KEPT_BYTES_MAX = 256 << 20
ENTRY_BYTES = 110  # of a set, per name in it, just after the set has grown


class ConnectionDecisions:
    """The kept decisions about the principal of one connection.

    Arguments:
        authorizer: of the broker.
        principal: of the connection.
        host: the address of the client.
    """

    __slots__ = (
        "_authorizations",
        "_bytes",
        "_count",
        "_ended",
        "_kept",
        "_version",
        "authorizer",
        "host",
        "principal",
    )

    def __init__(self, authorizer: AuditedAuthorizer, principal: Principal, host: str) -> None:
        self.authorizer = authorizer
        self.principal = principal
        self.host = host
        self._version = -1
        self._kept: dict[tuple[AclOperation, AclResourceType], set[str]] = {}
        self._bytes = self._count = 0
        self._ended = False
        self._authorizations: dict[type[Any], KeptAuthorization] = {}

    def authorization(self, response: type[Any]) -> "KeptAuthorization":
        """Return what the principal may do with requests of the API key that has this class of responses."""
        known = self._authorizations.get(response)
        if known is None:
            known = KeptAuthorization(self, response.__name__.removesuffix("Response"))
            self._authorizations[response] = known
        return known

    def kept(self, operation: AclOperation, resource_type: AclResourceType) -> set[str]:
        """Return the names of the resources that are known to be allowed by the current ACLs."""
        version = self.authorizer.authorizer.version
        if self._version != version:
            self._version = version
            self._forget()
        return self._kept.get((operation, resource_type)) or self._kept.setdefault((operation, resource_type), set())

    def keep(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> None:
        """Keep an allowed decision."""
        # `len` would count characters, which have 1 to 4 bytes each.
        kept, size = self.kept(operation, resource_type), ENTRY_BYTES + sys.getsizeof(name)
        if len(name) > NAME_CHARACTERS_MAX or self._count >= KEPT_NAMES_MAX or LOGGER.isEnabledFor(logging.DEBUG):
            return
        if self._ended or self.authorizer.kept_bytes + size > KEPT_BYTES_MAX:
            return
        self._count += 1
        self._bytes += size
        self.authorizer.kept_bytes += size
        kept.add(name)

    def end(self) -> None:
        """The connection is closed, or has other decisions: nothing is kept any more."""
        self._ended = True
        self._forget()

    def _forget(self) -> None:
        for names in self._kept.values():
            names.clear()
        self.authorizer.kept_bytes -= self._bytes
        self._bytes = self._count = 0


def decisions_of(authorizer: AuditedAuthorizer, connection: Connection) -> ConnectionDecisions:
    """Return the kept decisions of a connection; those of another principal are dropped."""
    principal = connection.principal or ANONYMOUS
    known: ConnectionDecisions | None = connection.decisions
    if known is None or known.principal is not principal or known.authorizer is not authorizer:
        if known is not None:
            known.end()
        known = connection.decisions = ConnectionDecisions(authorizer, principal, connection.peer_host)
    return known


class KeptAuthorization(Authorization):
    """What a principal may do, with the kept decisions of its connection.

    Arguments:
        decisions: of the connection.
        request: the name of the API key, for the audit log.
    """

    __slots__ = ("_decisions",)

    def __init__(self, decisions: ConnectionDecisions, request: str) -> None:
        super().__init__(decisions.authorizer, decisions.principal, decisions.host, request)
        self._decisions = decisions

    def kept(self, operation: AclOperation, resource_type: AclResourceType) -> set[str]:
        """Return the names of the resources that are known to be allowed by the current ACLs."""
        return self._decisions.kept(operation, resource_type)

    def allows(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        count: int = 1,
        log_denied: bool = True,
    ) -> bool:
        """Return whether the principal may do this with a resource; a decision that is not kept is logged.

        Arguments:
            operation: a concrete one.
            resource_type: of the resource.
            name: of the resource.
            count, log_denied: as of `Authorization.allows`.
        """
        if name in self._decisions.kept(operation, resource_type):
            return True
        allowed = super().allows(operation, resource_type, name, count=count, log_denied=log_denied)
        if allowed:
            self._decisions.keep(operation, resource_type, name)
        return allowed


def keeps_group_read(authorizer: AuditedAuthorizer, connection: Connection, group: str) -> bool:
    """Return whether a kept decision allows the principal of a connection to read a group; it decides nothing."""
    return group in decisions_of(authorizer, connection).kept(AclOperation.READ, AclResourceType.GROUP)
