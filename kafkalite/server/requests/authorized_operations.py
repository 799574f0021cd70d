"""Returns what a client may do with a resource, as the bit field that describe requests can ask for (KIP-430).

Without an authorizer a client may perform every operation that a resource of its type supports. A response without the
field has the default of its schema, -2147483648.
Source: AclOperation.java (codes), AclEntry.supportedOperations, AuthHelper.authorizedOperations.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported with an authorizer
    from kafkalite.server.security.authorization import Authorization

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = range(3, 10)
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(10, 13)

UNKNOWN_OPERATIONS = -(2**31)


def bit_field(*operations: int) -> int:
    """Return the codes of operations as one number."""
    return sum(1 << operation for operation in operations)


GROUP_OPERATIONS = bit_field(READ, DESCRIBE, DELETE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
TOPIC_OPERATIONS = bit_field(READ, WRITE, CREATE, DESCRIBE, DELETE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS)
CLUSTER_OPERATIONS = bit_field(
    CREATE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, ALTER, DESCRIBE
)


def topic_operations(authorization: "Authorization | None", name: str) -> int:
    """Return what a client may do with a topic."""
    if authorization is None:
        return TOPIC_OPERATIONS
    from kafkalite.state.authorizer.acls import AclResourceType

    return authorization.operations(AclResourceType.TOPIC, name)


def group_operations(asked: bool, authorization: "Authorization | None", name: str) -> int:
    """Return what a client may do with a group if the request asks for it, else the default."""
    if not asked:
        return UNKNOWN_OPERATIONS
    if authorization is None:
        return GROUP_OPERATIONS
    from kafkalite.state.authorizer.acls import AclResourceType

    return authorization.operations(AclResourceType.GROUP, name)


def cluster_operations(asked: bool, authorization: "Authorization | None") -> int:
    """Return what a client may do with the cluster if the request asks for it, else the default."""
    if not asked:
        return UNKNOWN_OPERATIONS
    if authorization is None:
        return CLUSTER_OPERATIONS
    from kafkalite.state.authorizer.acls import CLUSTER_NAME, AclResourceType

    return authorization.operations(AclResourceType.CLUSTER, CLUSTER_NAME)
