"""The interface of an authorizer, and its decisions."""

from typing import NamedTuple, Protocol

from kafkalite.model import Principal
from kafkalite.state.authorizer.acls import AclBinding, AclOperation, AclResourceType

SUPER_USER = "SuperUser"
DEFAULT_ALLOW = "DefaultAllow"
DEFAULT_DENY = "DefaultDeny"
INVALID_ACLS = "InvalidAcls"  # the ACLs of the resource cannot be read, so it is denied


class Decision(NamedTuple):
    """Whether a request is allowed, and why.

    Arguments:
        allowed: whether it is.
        acl: which decides; None: no ACL does.
        rule: which decides without an ACL: SUPER_USER, DEFAULT_ALLOW, DEFAULT_DENY, INVALID_ACLS, or that of a
            user-defined authorizer.
    """

    allowed: bool
    acl: AclBinding | None = None
    rule: str = ""

    @property
    def reason(self) -> str:
        """The rule in Kafka's words (StandardAuthorizerData.MatchingRule)."""
        return self.rule if self.acl is None else f"MatchingAcl(acl={self.acl})"


class Authorizer(Protocol):
    """Decides what principals may do; users can define their own.

    `version` grows with each change after which a decision can differ. A caller that keeps a decision keeps the version
    with it. The methods are called on the loop for each request, so they must not block.
    """

    @property
    def version(self) -> int:
        """Grows with each change."""

    def decide(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> Decision:
        """Return whether a principal may do something with a resource.

        Arguments:
            principal: of the connection.
            host: the address of the client.
            operation: a concrete one, neither ANY nor ALL.
            resource_type: of the resource.
            name: of the resource; CLUSTER_NAME for the cluster.
        """

    def allows_any(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Return whether a principal may do something with at least one resource of a type
        (Authorizer.authorizeByResourceType).

        Arguments:
            principal: of the connection.
            host: the address of the client.
            operation: a concrete one, neither ANY nor ALL.
            resource_type: of the resources.
        """
