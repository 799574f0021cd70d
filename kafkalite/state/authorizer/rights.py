"""The rights of one principal from one host, which are a part of the ACLs."""

from collections.abc import Collection, Iterable, Iterator

from kafkalite.state.authorizer.acls import (
    WILDCARD,
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from kafkalite.state.authorizer.patterns import PatternTable

Masks = tuple[int, int]  # operations that are allowed, and that are denied, by `1 << operation`
NO_RIGHTS: Masks = (0, 0)


def _implying(*operations: AclOperation) -> tuple[AclOperation, ...]:
    """Return operations whose ACLs apply to the last one, in the order in which `acl check` names them."""
    return (AclOperation.ALL, *operations)


# Operations of ACLs that allow an operation (StandardAuthorizerData, IMPLIES_DESCRIBE). A denied Read denies no
# Describe.
ALLOWING = {operation: _implying(operation) for operation in AclOperation} | {
    AclOperation.DESCRIBE: _implying(
        AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER
    ),
    AclOperation.DESCRIBE_CONFIGS: _implying(AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
}
DENYING = {operation: _implying(operation) for operation in AclOperation}


def mask(operations: Iterable[AclOperation]) -> int:
    """Return operations as one number."""
    return sum(1 << operation for operation in set(operations))


ALLOWING_MASK = {operation: mask(implying) for operation, implying in ALLOWING.items()}
DENYING_MASK = {operation: mask(implying) for operation, implying in DENYING.items()}


def _masks(acl: Acl) -> Masks:
    bit = 1 << acl.operation
    return (bit, 0) if acl.permission is PermissionType.ALLOW else (0, bit)


class Rights:
    """What the ACLs of a principal and host allow and deny.

    Arguments:
        principal: as the ACLs write it; `User:*` = all.
        host: as the ACLs write it; `*` = all.
    """

    def __init__(self, principal: str, host: str) -> None:
        self.principal = principal
        self.host = host
        self._table: PatternTable[Masks] = PatternTable()

    def __bool__(self) -> bool:
        return bool(self._table.values)

    def add(self, pattern: ResourcePattern, acl: Acl) -> None:
        """Add an ACL of this principal and host."""
        allowed, denied = self._table.get(pattern) or NO_RIGHTS
        allow, deny = _masks(acl)
        self._table.put(pattern, (allowed | allow, denied | deny))

    def remove(self, pattern: ResourcePattern, acl: Acl) -> None:
        """Remove an ACL that was added."""
        allowed, denied = self._table.get(pattern) or NO_RIGHTS
        allow, deny = _masks(acl)
        masks = allowed & ~allow, denied & ~deny
        if masks == NO_RIGHTS:
            self._table.remove(pattern)
        else:
            self._table.put(pattern, masks)

    def matching(self, resource_type: AclResourceType, name: str) -> Iterator[tuple[ResourcePattern, Masks]]:
        """Iterate over what applies to a resource."""
        return self._table.matching(resource_type, name)

    def of_type(self, resource_type: AclResourceType, operations: int) -> Iterator[tuple[ResourcePattern, Masks]]:
        """Iterate over what applies to some resource of a type, and to one of the operations."""
        for pattern, (allowed, denied) in self._table.values.items():
            if pattern.resource_type is resource_type and (allowed | denied) & operations:
                yield pattern, (allowed & operations, denied & operations)

    def acl(self, permission: PermissionType, bits: int, operation: AclOperation) -> Acl:
        """Return the ACL with this permission that applies to an operation, of those whose bits are set."""
        implying = ALLOWING if permission is PermissionType.ALLOW else DENYING
        applied = next(each for each in implying[operation] if bits & 1 << each)
        return Acl(self.principal, self.host, applied, permission)


def allows_some(
    several: Iterable[Rights],
    resource_type: AclResourceType,
    operation: AclOperation,
    invalid: Collection[ResourcePattern] = (),
) -> bool:
    """Return whether there is a resource of a type for which an operation is allowed.

    As Kafka, this does not apply implied operations, and an allowed prefix counts although each known name below it may
    be denied. Source: Authorizer.authorizeByResourceType.

    Arguments:
        several: all rights that apply to the principal and its host.
        resource_type: of the resources.
        operation: a concrete one.
        invalid: patterns that are denied because their ACLs cannot be read.
    """
    bits = DENYING_MASK[operation]
    entries = [each for rights in several for each in rights.of_type(resource_type, bits)]
    denied = {pattern for pattern, masks in entries if masks[1]}.union(invalid)
    if ResourcePattern(resource_type, WILDCARD) in denied:
        return False
    return any(masks[0] and not _is_denied(pattern, denied) for pattern, masks in entries)


def _is_denied(pattern: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    """Return whether the resources of an allowed pattern are all denied."""
    resource_type, name, pattern_type = pattern
    if pattern_type is PatternType.LITERAL and name == WILDCARD:
        return False
    if pattern_type is PatternType.LITERAL and pattern in denied:
        return True
    return any(
        ResourcePattern(resource_type, name[:length], PatternType.PREFIXED) in denied
        for length in range(1, len(name) + 1)
    )
