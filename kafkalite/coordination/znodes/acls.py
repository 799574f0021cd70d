"""Nodes of ACLs: `/kafka-acl` has the literal patterns, `/kafka-acl-extended/prefixed` the prefixed ones.

Each change creates a notification below `/kafka-acl-changes` or `/kafka-acl-extended-changes`.
Source: ZkAclStore, ZkAclChangeStore and ResourceZNode (ZkData.scala), AclEntry.java of Apache Kafka 3.9.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kafkalite.coordination.tree import Create
from kafkalite.coordination.znodes.fields import ZnodeError, ZnodeReader, dump, parse

LITERAL_ACLS = "/kafka-acl"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
EXTENDED_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE = "acl_changes_"
PREFIXED = "PREFIXED"


class AclEntry(NamedTuple):
    """An ACL as a node has it: `Allow` or `Deny`, operations as `DescribeConfigs`."""

    principal: str
    permission_type: str
    operation: str
    host: str


class ChangedAcls(NamedTuple):
    """The resource pattern of a notification; its type as `TRANSACTIONAL_ID`."""

    resource_type: str
    name: str
    prefixed: bool


def acls_path(resource_type: str, name: str, *, prefixed: bool) -> str:
    """Node of the ACLs of a resource pattern; its type as `TransactionalId`."""
    return f"{PREFIXED_ACLS if prefixed else LITERAL_ACLS}/{resource_type}/{name}"


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """The node of a resource pattern."""
    acls = [
        {
            "principal": each.principal,
            "permissionType": each.permission_type,
            "operation": each.operation,
            "host": each.host,
        }
        for each in entries
    ]
    return dump({"version": 1, "acls": acls})


def decode_acls(path: str, data: bytes) -> list[AclEntry]:
    """The ACLs of a resource pattern; none without data. Raises ZnodeError."""
    if not data:
        return []
    fields = ZnodeReader(path, parse(path, data))
    if fields.whole("version") != 1:
        raise fields.wrong("version")
    return [
        AclEntry(each.text("principal"), each.text("permissionType"), each.text("operation"), each.text("host"))
        for each in fields.objects("acls")
    ]


def change_of(changed: ChangedAcls) -> Create:
    """The notification of a change."""
    if not changed.prefixed:
        data = f"{changed.resource_type}:{changed.name}".encode()
        return Create(f"{LITERAL_CHANGES}/{ACL_CHANGE}", data, sequence=True)
    event = {"version": 1, "resourceType": changed.resource_type, "name": changed.name, "patternType": PREFIXED}
    return Create(f"{EXTENDED_CHANGES}/{ACL_CHANGE}", dump(event), sequence=True)


def decode_literal_change(path: str, data: bytes) -> ChangedAcls:
    """The resource of a notification below `LITERAL_CHANGES`; raises ZnodeError."""
    try:
        resource_type, colon, name = data.decode().partition(":")
    except UnicodeDecodeError as error:
        raise ZnodeError(f"{path}: not UTF-8") from error
    if not colon:
        raise ZnodeError(f"{path}: expected a string in format ResourceType:ResourceName")
    return ChangedAcls(resource_type.upper(), name, prefixed=False)


def decode_extended_change(path: str, data: bytes) -> ChangedAcls:
    """The resource of a notification below `EXTENDED_CHANGES`; raises ZnodeError."""
    fields = ZnodeReader(path, parse(path, data))
    if fields.whole("version") > 1 or fields.text("patternType").upper() != PREFIXED:
        raise fields.wrong("version" if fields.whole("version") > 1 else "patternType")
    return ChangedAcls(fields.text("resourceType").upper(), fields.text("name"), prefixed=True)
