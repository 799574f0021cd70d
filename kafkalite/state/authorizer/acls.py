"""ACLs: who may do what with which resources, with Kafka's codes.

Sources: AclOperation.java, ResourceType.java, PatternType.java, AclPermissionType.java (codes), SecurityUtils.java
(names), ResourcePatternFilter.java and AccessControlEntryFilter.java (filters), AclEntry.supportedOperations.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import NamedTuple, Self

from kafkalite.model import Principal

WILDCARD = "*"  # as the name of a literal pattern, and as a host: all
WILDCARD_PRINCIPAL = Principal("User", WILDCARD)
NAME_CHARACTERS_MAX = 249  # of topics; decisions about longer names are not kept, so that their memory has a bound
CLUSTER_NAME = "kafka-cluster"  # of the only resource of type CLUSTER


class _Code(IntEnum):
    """A code of the protocol; an unknown number is UNKNOWN, as fromCode of Kafka's enumerations."""

    __hash__ = int.__hash__  # that of Enum is a Python function, and codes are parts of dictionary keys

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls(0) if isinstance(value, int) else None

    @property
    def title(self) -> str:
        """The name in znodes and logs: `TransactionalId` (SecurityUtils.toPascalCase)."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def from_name(cls, name: str) -> Self:
        """Return the value of a name in a znode; UNKNOWN for others (SecurityUtils.valueFromMap)."""
        names = _by_title(cls)
        return cls(names.get(name) or names.get(name.upper(), 0))


@cache
def _by_title(codes: type[_Code]) -> dict[str, int]:
    return {text: int(each) for each in codes for text in (each.title, each.title.upper())}


class AclOperation(_Code):
    """What a request does with a resource. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResourceType(_Code):
    """The type of a resource. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """How a pattern names resources. ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(_Code):
    """Whether an ACL denies or allows. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resources that an ACL is about.

    Arguments:
        resource_type: of the resources.
        name: of the resource, or with which the names begin (PREFIXED); `*` in a LITERAL pattern = all.
        pattern_type: LITERAL or PREFIXED.
    """

    resource_type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.resource_type.title}:{self.pattern_type.name}:{self.name}"


class Acl(NamedTuple):
    """What a principal may do, or may not.

    Arguments:
        principal: such as `User:alice`; `User:*` = all.
        host: an address, `*` = all.
        operation: ALL = each.
        permission: ALLOW or DENY.
    """

    principal: str
    host: str
    operation: AclOperation
    permission: PermissionType


class AclBinding(NamedTuple):
    """An ACL with its resources."""

    pattern: ResourcePattern
    acl: Acl

    def __str__(self) -> str:  # StandardAcl.toString
        (resource_type, name, pattern_type), (principal, host, operation, permission) = self
        return (
            f"StandardAcl(resourceType={resource_type.name}, resourceName={name}, patternType={pattern_type.name}, "
            f"principal={principal}, host={host}, operation={operation.name}, permissionType={permission.name})"
        )


class AclFilter(NamedTuple):
    """Selects ACLs: each field must match; the defaults match all.

    Arguments:
        resource_type: of the pattern.
        name: of the pattern; None = all.
        pattern_type: ANY = both; MATCH = the patterns that apply to a resource of this name.
        principal: None = all.
        host: None = all.
        operation: of the ACL.
        permission: of the ACL.
    """

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: PermissionType = PermissionType.ANY

    def matches(self, binding: AclBinding) -> bool:
        """Return whether an ACL is selected."""
        return self.matches_pattern(binding.pattern) and self.matches_acl(binding.acl)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Return whether ACLs of a pattern can be selected."""
        if self.resource_type not in (AclResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def matches_acl(self, acl: Acl) -> bool:
        """Return whether an ACL of a matching pattern is selected."""
        return (
            (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (PermissionType.ANY, acl.permission)
        )


ALL_ACLS = AclFilter()

_TOPIC_OPERATIONS = (
    *(AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER),
    *(AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
)
_GROUP_OPERATIONS = (
    *(AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
    *(AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
)
_CLUSTER_OPERATIONS = (
    *(AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION),
    *(AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE),
)
SUPPORTED_OPERATIONS: dict[AclResourceType, tuple[AclOperation, ...]] = {
    AclResourceType.TOPIC: _TOPIC_OPERATIONS,
    AclResourceType.GROUP: _GROUP_OPERATIONS,
    AclResourceType.CLUSTER: _CLUSTER_OPERATIONS,
    AclResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}


def parse_principal(text: str) -> Principal:
    """Parse `TYPE:NAME`; the name may contain colons. Raises ValueError (SecurityUtils.parseKafkaPrincipal)."""
    principal_type, colon, name = text.partition(":")
    if not colon:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(principal_type, name)


def bit_field(allowed: Callable[[AclOperation], bool], resource_type: AclResourceType) -> int:
    """Return the operations of a resource type that are allowed, as the number of KIP-430."""
    return sum(1 << operation for operation in SUPPORTED_OPERATIONS[resource_type] if allowed(operation))
