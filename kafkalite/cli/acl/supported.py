"""Rejects operations that a type of resource does not have (AclEntry.supportedOperations)."""

from typing import TYPE_CHECKING

from kafkalite.cli.failure import fail

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalite_sdk.admin import AclOperation, AclResource


def require_supported(operations: "Sequence[AclOperation]", resources: "Iterable[tuple[AclResource, str]]") -> None:
    """End the command if an ACL would have no effect, as that of write on a group.

    Arguments:
        operations: of the command; all = each that a resource has.
        resources: types and names.
    """
    from kafkalite.state.authorizer import acls as codes

    for resource, _ in resources:
        known = (codes.AclOperation.ALL, *sorted(codes.SUPPORTED_OPERATIONS[codes.AclResourceType(resource)]))
        for operation in operations:
            if codes.AclOperation(operation) not in known:
                names = ", ".join(option_text(each.name) for each in known)
                fail(f"a {option_text(resource.name)} has no operation {option_text(operation.name)}; it has {names}")


def option_text(name: str) -> str:
    """Return the name of an enumeration as options have it: DESCRIBE_CONFIGS is describe-configs."""
    return name.lower().replace("_", "-")
