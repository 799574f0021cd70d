"""A naive model of StandardAuthorizer: it looks at each ACL for each question; and random ACLs and questions."""

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from kafkalite.model import Principal
from kafkalite.state.authorizer.acls import (
    Acl,
    AclBinding,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    ResourcePattern,
)

READ, WRITE, DELETE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER
DESCRIBE, DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
ALL = AclOperation.ALL
ALLOW, DENY, PREFIXED, LITERAL = PermissionType.ALLOW, PermissionType.DENY, PatternType.PREFIXED, PatternType.LITERAL
IMPLIED = {
    DESCRIBE: {READ, WRITE, DELETE, ALTER},
    DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}
PRINCIPALS = [Principal("User", name) for name in ("alice", "CN=carol, O=x:y")]
HOSTS = ["127.0.0.1", "0:0:0:0:0:0:0:1"]
NAMES = ["a", "ab", "abc", "b", "*", "a*"]
TYPES = [AclResourceType.TOPIC, AclResourceType.GROUP]
OPERATIONS = [READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS]


class Question(NamedTuple):
    """Whether a principal may do something.

    Arguments:
        principal: of the connection.
        host: of the client.
        operation: which it asks for.
        resource_type: of the resource.
        name: of the resource.
    """

    principal: Principal
    host: str
    operation: AclOperation
    resource_type: AclResourceType
    name: str


def random_binding(random: Random) -> AclBinding:
    """Return an ACL; a third of them deny."""
    pattern = ResourcePattern(random.choice(TYPES), random.choice(NAMES), random.choice([LITERAL, PREFIXED]))
    principal = random.choice([*map(str, PRINCIPALS), "User:*"])
    permission = random.choice([DENY, ALLOW, ALLOW])
    operation = random.choice([*OPERATIONS, ALL])
    return AclBinding(pattern, Acl(principal, random.choice([*HOSTS, "*", "*"]), operation, permission))


def random_question(random: Random) -> Question:
    """Return a question to which ACLs of `random_binding` may apply."""
    return Question(
        random.choice(PRINCIPALS),
        random.choice(HOSTS),
        random.choice(OPERATIONS),
        random.choice(TYPES),
        random.choice([*NAMES, "abcd", "c"]),
    )


def applies_to_name(pattern: ResourcePattern, question: Question) -> bool:
    """Return whether a pattern applies to the resource of a question."""
    if pattern.resource_type != question.resource_type:
        return False
    if pattern.pattern_type == PREFIXED:
        return question.name.startswith(pattern.name)
    return pattern.name in ("*", question.name)


def applies_to_client(acl: Acl, question: Question) -> bool:
    """Return whether an ACL is about the principal and the host of a question."""
    return acl.principal in ("User:*", str(question.principal)) and acl.host in ("*", question.host)


def naive_decision(bindings: Iterable[AclBinding], question: Question, *, allow_everyone: bool = False) -> bool:
    """Return whether a question is allowed.

    Arguments:
        bindings: all ACLs.
        question: to answer.
        allow_everyone: `allow.everyone.if.no.acl.found`.
    """
    of_resource = [acl for pattern, acl in bindings if applies_to_name(pattern, question)]
    applicable = [acl for acl in of_resource if applies_to_client(acl, question)]
    asked = question.operation
    if any(acl.permission == DENY and acl.operation in (ALL, asked) for acl in applicable):
        return False
    allowing = {ALL, asked} | IMPLIED.get(asked, set())
    if any(acl.permission == ALLOW and acl.operation in allowing for acl in applicable):
        return True
    return allow_everyone and not of_resource


def naive_any(bindings: Iterable[AclBinding], question: Question, *, allow_everyone: bool = False) -> bool:
    """Return whether an operation is allowed on some resource: that of Authorizer.java, ACL by ACL.

    Arguments:
        bindings: all ACLs.
        question: its name is not used.
        allow_everyone: `allow.everyone.if.no.acl.found`.
    """
    bindings = list(bindings)
    if naive_decision(bindings, question._replace(name="hardcode"), allow_everyone=allow_everyone):
        return True
    wanted = (ALL, question.operation)
    found = [
        (pattern, acl.permission)
        for pattern, acl in bindings
        if pattern.resource_type == question.resource_type
        and applies_to_client(acl, question)
        and acl.operation in wanted
    ]
    denied = {pattern[1:] for pattern, permission in found if permission == DENY}
    allowed = {pattern[1:] for pattern, permission in found if permission == ALLOW}
    if ("*", LITERAL) in denied:
        return False
    if ("*", LITERAL) in allowed:
        return True
    return any(
        not (pattern_type == LITERAL and (name, pattern_type) in denied)
        and not any((name[: end + 1], PREFIXED) in denied for end in range(len(name)))
        for name, pattern_type in allowed
    )
