"""Converts ACLs to the nodes that store them, and back."""

from collections.abc import Iterable

from kafkalite.coordination.tree import Create
from kafkalite.coordination.znodes.acls import AclEntry, ChangedAcls, acls_path, change_of, decode_acls, encode_acls
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.state.authorizer.acls import (
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    ResourcePattern,
    parse_principal,
)


def path_of(pattern: ResourcePattern) -> str:
    """Return the node of a pattern."""
    return acls_path(pattern.resource_type.title, pattern.name, prefixed=pattern.pattern_type is PatternType.PREFIXED)


def encode(acls: Iterable[Acl]) -> bytes:
    """Return the contents of the node of a pattern."""
    return encode_acls(
        AclEntry(each.principal, each.permission.title, each.operation.title, each.host) for each in acls
    )


def decode(path: str, data: bytes) -> tuple[Acl, ...]:
    """Return the ACLs of a node, in its order.

    Raises ZnodeError, also for operations and permissions that are not known: Kafka ignores those, but one of them may
    deny.
    """
    return tuple(dict.fromkeys(_acl(path, each) for each in decode_acls(path, data)))


def _acl(path: str, entry: AclEntry) -> Acl:
    operation, permission = AclOperation.from_name(entry.operation), PermissionType.from_name(entry.permission_type)
    if operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise ZnodeError(f"{path}: unknown operation {entry.operation!r}")
    if permission in (PermissionType.UNKNOWN, PermissionType.ANY):
        raise ZnodeError(f"{path}: unknown permission type {entry.permission_type!r}")
    try:
        parse_principal(entry.principal)
    except ValueError as error:
        raise ZnodeError(f"{path}: {error}") from error
    return Acl(entry.principal, entry.host, operation, permission)


def notice_of(pattern: ResourcePattern) -> Create:
    """Return the notification of a change of a pattern."""
    resource_type, name, pattern_type = pattern
    return change_of(ChangedAcls(resource_type.name, name, pattern_type is PatternType.PREFIXED))


def pattern_of(changed: ChangedAcls) -> ResourcePattern | None:
    """Return the pattern of a notification; None: its type is not known."""
    resource_type = AclResourceType.__members__.get(changed.resource_type)
    if resource_type is None or resource_type <= AclResourceType.ANY:
        return None
    return ResourcePattern(
        resource_type, changed.name, PatternType.PREFIXED if changed.prefixed else PatternType.LITERAL
    )
