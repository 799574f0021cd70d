"""What handlers ask an authorizer: `Authorization`, for one principal, host and API key."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkalite.clock import Clock
from kafkalite.model import Principal
from kafkalite.server.security.audit_log import Action, AuditLog
from kafkalite.state.authorizer.acls import CLUSTER_NAME, AclBinding, AclOperation, AclResourceType, bit_field
from kafkalite.state.authorizer.interface import Authorizer

if TYPE_CHECKING:  # not of user-defined authorizers
    from kafkalite.cluster.acls.store import AclStore


class Authorization:
    """What a principal may do.

    Arguments:
        audited: decides, and logs each decision.
        principal: of the connection.
        host: the address of the client.
        request: the name of the API key, such as `Produce`, for the audit log.
    """

    __slots__ = ("_audited", "_request", "host", "principal")

    def __init__(self, audited: "AuditedAuthorizer", principal: Principal, host: str, request: str) -> None:
        self._audited = audited
        self._request = request
        self.principal = principal
        self.host = host

    @property
    def version(self) -> int:
        """Grows with each change of the ACLs: a caller that keeps a result asks again when it has changed."""
        return self._audited.authorizer.version

    def allows(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        count: int = 1,
        log_denied: bool = True,
    ) -> bool:
        """Return whether the principal may do this with a resource; writes the audit log.

        Arguments:
            operation: a concrete one.
            resource_type: of the resource.
            name: of the resource.
            count: how often the request names the resource, for the log.
            log_denied: False: the client has not asked for this very resource, so a refusal is no event.
        """
        decision = self._audited.authorizer.decide(self.principal, self.host, operation, resource_type, name)
        if decision.allowed or log_denied:
            action = Action(operation, resource_type, name, count)
            self._audited.audit_log.record(self.principal, self.host, self._request, action, decision)
        return decision.allowed

    def allows_cluster(self, operation: AclOperation, *, log_denied: bool = True) -> bool:
        """Return whether the principal may do this with the cluster; writes the audit log."""
        return self.allows(operation, AclResourceType.CLUSTER, CLUSTER_NAME, log_denied=log_denied)

    def allowed_names(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        names: Iterable[str],
        *,
        log_denied: bool = True,
    ) -> set[str]:
        """Return those names of resources with which the principal may do this; writes the audit log.

        Arguments:
            operation: a concrete one.
            resource_type: of the resources.
            names: of the resources.
            log_denied: False: the client has not asked for these very resources, so a refusal is no event.
        """
        return {name for name in names if self.allows(operation, resource_type, name, log_denied=log_denied)}

    def allows_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Return whether the principal may do this with at least one resource of a type."""
        return self._audited.authorizer.allows_any(self.principal, self.host, operation, resource_type)

    def operations(self, resource_type: AclResourceType, name: str) -> int:
        """Return what the principal may do with a resource, as the bit field of KIP-430; writes no log."""
        decide = self._audited.authorizer.decide
        return bit_field(
            lambda operation: decide(self.principal, self.host, operation, resource_type, name).allowed, resource_type
        )

    def log_change(self, what: str, binding: AclBinding) -> None:
        """Write to the audit log that the principal has `created` or `deleted` an ACL."""
        self._audited.audit_log.record_change(self.principal, self.host, what, "ACL", str(binding))


class AuditedAuthorizer:
    """An authorizer with its audit log.

    Arguments:
        authorizer: decides.
        clock: for the bound on the number of lines in the log.
        acls: those by which it decides; None: requests cannot change them.

    Attributes:
        kept_bytes: of the decisions that all connections keep (`requests/authorization/decision_cache`).
    """

    def __init__(self, authorizer: Authorizer, clock: Clock, acls: "AclStore | None" = None) -> None:
        self.authorizer = authorizer
        self.acls = acls
        self.audit_log = AuditLog(clock)
        self.kept_bytes = 0
