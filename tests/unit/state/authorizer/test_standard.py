"""The rules of StandardAuthorizer, one by one."""

import pytest

from kafkalite.model import Principal
from kafkalite.state.authorizer import acls
from kafkalite.state.authorizer.acls import (
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    ResourcePattern,
    bit_field,
    parse_principal,
)
from kafkalite.state.authorizer.hosts import java_address
from kafkalite.state.authorizer.standard import KEPT_DECISIONS_MAX, StandardAuthorizer

ALICE = Principal("User", "alice")
TOPIC = AclResourceType.TOPIC
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
PREFIXED = PatternType.PREFIXED


def acl(
    operation: AclOperation = READ, permission: PermissionType = ALLOW, principal: str = "User:alice", host: str = "*"
) -> Acl:
    return Acl(principal, host, operation, permission)


def authorizer(*bindings: tuple[str, Acl], everyone: bool = False, of: str = "LITERAL") -> StandardAuthorizer:
    created = StandardAuthorizer([Principal("User", "root")], allow_everyone=everyone)
    for name, each in bindings:
        pattern = ResourcePattern(TOPIC, name, PatternType[of])
        created.replace(pattern, [*(found.acl for found in created.acls() if found.pattern == pattern), each])
    return created


def allows(authorizer: StandardAuthorizer, name: str, operation: AclOperation = READ, host: str = "127.0.0.1") -> bool:
    return authorizer.decide(ALICE, host, operation, TOPIC, name).allowed


def test_without_acls_only_super_users_are_allowed() -> None:
    empty = authorizer()
    assert not allows(empty, "t")
    decision = empty.decide(Principal("User", "root"), "h", WRITE, TOPIC, "t")
    assert decision.allowed
    assert decision.reason == "SuperUser"


def test_everyone_is_allowed_only_where_the_resource_has_no_acl_of_anybody() -> None:
    found = authorizer(("t", acl(principal="User:bob")), everyone=True)
    assert not allows(found, "t")
    assert allows(found, "u")
    assert found.decide(ALICE, "h", READ, TOPIC, "u").reason == "DefaultAllow"


def test_deny_wins_over_allow_of_a_longer_pattern() -> None:
    found = authorizer(("orders", acl()))
    found.replace(ResourcePattern(TOPIC, "ord", PREFIXED), [acl(permission=DENY)])
    assert not allows(found, "orders")
    found.replace(ResourcePattern(TOPIC, "ord", PREFIXED), [])
    assert allows(found, "orders")
    found.replace(ResourcePattern(TOPIC, "*"), [acl(permission=DENY, principal="User:*")])
    assert not allows(found, "orders")


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_describe_is_implied_by_allow_not_by_deny(operation: AclOperation) -> None:
    assert allows(authorizer(("t", acl(operation))), "t", DESCRIBE)
    denied = authorizer(("t", acl(operation, DENY)), ("t", acl(DESCRIBE)))
    assert allows(denied, "t", DESCRIBE)


def test_describe_configs_is_implied_by_alter_configs_only() -> None:
    assert allows(authorizer(("t", acl(AclOperation.ALTER_CONFIGS))), "t", AclOperation.DESCRIBE_CONFIGS)
    assert not allows(authorizer(("t", acl(AclOperation.ALTER))), "t", AclOperation.DESCRIBE_CONFIGS)
    assert not allows(authorizer(("t", acl(AclOperation.ALTER_CONFIGS))), "t", DESCRIBE)


def test_hosts_are_compared_as_java_writes_them() -> None:
    assert allows(authorizer(("t", acl(host="0:0:0:0:0:0:0:1"))), "t", host="::1")
    assert allows(authorizer(("t", acl(host="::1"))), "t", host="::1")
    assert allows(authorizer(("t", acl(host="10.1.2.3"))), "t", host="::ffff:10.1.2.3")
    assert not allows(authorizer(("t", acl(host="10.1.2.3"))), "t", host="10.1.2.4")
    both = authorizer(("t", acl(host="::1")), ("t", acl(host="0:0:0:0:0:0:0:1")))
    both.replace(ResourcePattern(TOPIC, "t"), [acl(host="::1")])
    assert allows(both, "t", host="::1")


def test_addresses_of_java() -> None:
    assert java_address("fe80::1%eth0") == "fe80:0:0:0:0:0:0:1%eth0"
    assert java_address("2001:db8::a") == "2001:db8:0:0:0:0:0:a"
    assert java_address("not:an:address") == "not:an:address"


def test_wildcard_is_one_of_type_user() -> None:
    group = authorizer(("t", acl(principal="Group:*")))
    assert not group.decide(Principal("Group", "g"), "h", READ, TOPIC, "t").allowed
    assert authorizer(("t", acl(principal="User:*"))).decide(Principal("Group", "g"), "h", READ, TOPIC, "t").allowed


def test_acls_that_cannot_be_read_deny_their_resource() -> None:
    found = authorizer(("orders", acl()), ("other", acl()), everyone=True)
    found.invalidate(ResourcePattern(TOPIC, "ord", PREFIXED), "not JSON")
    assert not allows(found, "orders")
    assert allows(found, "other")
    assert found.decide(ALICE, "h", READ, TOPIC, "orders").reason == "InvalidAcls"
    assert found.decide(Principal("User", "root"), "h", READ, TOPIC, "orders").allowed
    found.replace(ResourcePattern(TOPIC, "ord", PREFIXED), [])
    assert allows(found, "orders")


def test_the_version_changes_with_decisions_only() -> None:
    found = authorizer()
    pattern = ResourcePattern(TOPIC, "t")
    found.replace(pattern, [acl()])
    version = found.version
    found.replace(pattern, [acl()])
    assert found.version == version
    found.replace(pattern, [acl(WRITE)])
    assert found.version == version + 1


def test_an_invalid_principal_changes_nothing() -> None:
    found = authorizer(("t", acl()))
    with pytest.raises(ValueError, match="principalType:principalName"):
        found.replace(ResourcePattern(TOPIC, "t"), [acl(WRITE), acl(principal="alice")])
    assert allows(found, "t")
    assert not allows(found, "t", WRITE)


def test_the_reason_names_the_acl_as_kafka_does() -> None:
    decision = authorizer(("ord", acl(ALL)), of="PREFIXED").decide(ALICE, "h", READ, TOPIC, "orders")
    assert decision.reason == (
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=ord, patternType=PREFIXED, "
        "principal=User:alice, host=*, operation=ALL, permissionType=ALLOW))"
    )


def test_filters_match_as_those_of_kafka() -> None:
    literal, prefixed, every = (
        AclBinding(ResourcePattern(TOPIC, "orders"), acl()),
        AclBinding(ResourcePattern(TOPIC, "ord", PREFIXED), acl(WRITE)),
        AclBinding(ResourcePattern(TOPIC, "*"), acl(principal="User:*", permission=DENY)),
    )
    several = [literal, prefixed, every]

    def selected(**fields: object) -> list[AclBinding]:
        return [each for each in several if AclFilter(**fields).matches(each)]  # type: ignore[arg-type]

    assert selected() == several
    assert selected(name="orders", pattern_type=PatternType.MATCH) == several
    assert selected(name="orders") == [literal]
    assert selected(name="ord", pattern_type=PREFIXED) == [prefixed]
    assert selected(name="ord", pattern_type=PatternType.LITERAL) == []
    assert selected(operation=READ, permission=DENY) == [every]
    assert selected(principal="User:alice", host="h") == []
    assert selected(resource_type=AclResourceType.GROUP) == []


def test_names_and_codes() -> None:
    assert AclResourceType.from_name("TransactionalId") is AclResourceType.TRANSACTIONAL_ID
    assert AclOperation.from_name("clusteraction") is AclOperation.CLUSTER_ACTION
    assert AclOperation.from_name("Nothing") is AclOperation.UNKNOWN
    assert AclOperation(99) is AclOperation.UNKNOWN
    assert parse_principal("User:CN=a:b") == Principal("User", "CN=a:b")
    assert bit_field(lambda operation: operation is READ, TOPIC) == 8
    assert set(acls.SUPPORTED_OPERATIONS) == set(AclResourceType) - {AclResourceType.UNKNOWN, AclResourceType.ANY}


def test_kept_decisions_are_bounded() -> None:
    found = authorizer(("t", acl()))
    for index in range(KEPT_DECISIONS_MAX + 10):
        allows(found, f"unknown-{index}")
    assert sum(map(len, found._kept.values())) < KEPT_DECISIONS_MAX
    assert allows(found, "t")


class CountedLookups(dict[ResourcePattern, object]):
    """A dictionary that counts how often it is asked."""

    lookups = 0

    def get(self, *args: object) -> object:  # type: ignore[override]
        CountedLookups.lookups += 1
        return super().get(*args)  # type: ignore[call-overload]


def test_the_cost_is_independent_of_the_number_of_acls() -> None:
    def lookups(count: int) -> int:
        found = StandardAuthorizer()
        for index in range(10_000, 10_000 + count):
            pattern_type = PREFIXED if index % 2 else PatternType.LITERAL
            principal = f"User:user-{index}" if index % 3 else "User:alice"
            found.replace(ResourcePattern(TOPIC, f"topic-{index}", pattern_type), [acl(principal=principal)])
        found.replace(ResourcePattern(TOPIC, "*"), [acl(principal=f"User:{index}") for index in range(count)])
        for rights in found._rights.values():
            rights._table.values = CountedLookups(rights._table.values)  # type: ignore[assignment]
        CountedLookups.lookups = 0
        for index in range(500):
            allows(found, f"topic-{index}")
        return CountedLookups.lookups

    assert lookups(10_000) == lookups(100) > 0
