"""Returns what a client may do with a resource, as the bit field that describe requests can ask for (KIP-430).

Without an authorizer a client may perform every operation that a resource of its type supports. A response without the
field has the default of its schema, -2147483648.
Source: AclOperation.java (codes), AclEntry.supportedOperations, AuthHelper.authorizedOperations.
"""

from kafkalite.server.requests.call import PlainCall
from kafkalite.state.authorizer.acls import CLUSTER_NAME, AclOperation, AclResourceType

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
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


def topic_operations(call: PlainCall, name: str) -> int:
    """Return what the client may do with a topic."""
    if call.authorization is None:
        return TOPIC_OPERATIONS
    return call.authorization.operations(TOPIC, name)


def group_operations(call: PlainCall, name: str) -> int:
    """Return what the client may do with a group."""
    if call.authorization is None:
        return GROUP_OPERATIONS
    return call.authorization.operations(GROUP, name)


def cluster_operations(call: PlainCall, *, asked: bool) -> int:
    """Return what the client may do with the cluster, 0 if it may not describe it; the default unless it is asked."""
    if not asked:
        return UNKNOWN_OPERATIONS
    if call.authorization is None:
        return CLUSTER_OPERATIONS
    allowed = call.authorization.allows_cluster(AclOperation(DESCRIBE))
    return call.authorization.operations(CLUSTER, CLUSTER_NAME) if allowed else 0
