"""Returns what a client may do with a resource, as the bit field that describe requests can ask for (KIP-430).

There is no authorizer: a client may perform every operation that a resource of its type supports. A response without
the field has the default of its schema, -2147483648.
Source: AclOperation.java (codes), AclEntry.supportedOperations, AuthHelper.authorizedOperations.
"""

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


def if_asked(asked: bool, operations: int) -> int:
    """Return the operations if the request asks for them, else the default."""
    return operations if asked else UNKNOWN_OPERATIONS
