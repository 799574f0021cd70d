"""Tests ACLs at a broker that is alone: stored in Kafka's nodes, validated, effective at once, audited."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalite.config.authorizer import installed_authorizers
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.keys import ConfigError
from kafkalite.coordination.tree import Set
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Principal
from kafkalite.protocol.messages.create_acls import CreateAclsRequest
from kafkalite.protocol.messages.delete_acls import DeleteAclsRequest
from kafkalite.protocol.messages.describe_acls import DescribeAclsRequest
from kafkalite.protocol.messages.describe_cluster import DescribeClusterRequest
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.server.broker import Broker
from kafkalite.server.security import audit_log
from kafkalite.server.security.authorization import AuditedAuthorizer, Authorization
from kafkalite.state.authorizer.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from kafkalite.state.authorizer.interface import Decision
from kafkalite.state.authorizer.standard import StandardAuthorizer
from kafkalite.testing.virtual_clock import VirtualClock
from tests.kit.server import Client, running

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECURED = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
ALICE = Principal("User", "alice")
INVALID = KafkaErrorCode.INVALID_REQUEST
DENIED = KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
READ, WRITE = AclOperation.READ, AclOperation.WRITE
Creation = CreateAclsRequest.AclCreation
Filter = DeleteAclsRequest.DeleteAclsFilter


def creation(name: str = "orders", **fields: Any) -> Creation:
    defaults = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": PermissionType.ALLOW,
    }
    return Creation(**{**defaults, **fields})


def filters(of: type[Any], **fields: Any) -> Any:
    defaults = {
        "resource_type_filter": AclResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": PermissionType.ANY,
    }
    return of(**{**defaults, **fields})


async def create(client: Client, *creations: Creation) -> list[int]:
    response = await client.call(CreateAclsRequest(creations=list(creations)))
    return [each.error_code for each in response.results]


async def delete(client: Client, **fields: Any) -> list[tuple[str, str, int]]:
    response = await client.call(DeleteAclsRequest(filters=[filters(Filter, **fields)]))
    (result,) = response.filter_results
    assert result.error_code == 0, result
    return [(each.resource_name, each.principal, each.operation) for each in result.matching_acls]


async def described(client: Client, **fields: Any) -> list[tuple[str, int, str, int]]:
    response = await client.call(filters(DescribeAclsRequest, **fields))
    assert response.error_code == 0, response
    return [
        (each.resource_name, each.pattern_type, acl.principal, acl.operation)
        for each in response.resources
        for acl in each.acls
    ]


def nodes(client: Client) -> dict[str, bytes]:
    service = client.broker._resources.coordination
    assert service is not None
    return {path: node.data for path, node in service.tree.walk() if path.startswith("/kafka-acl") and node.data}


def allows(client: Client, name: str, operation: AclOperation = READ, principal: Principal = ALICE) -> bool:
    assert client.broker.authorizer is not None
    authorization = Authorization(client.broker.authorizer, principal, "127.0.0.1", "Fetch")
    return authorization.allows(operation, TOPIC, name)


@asynccontextmanager
async def secured(data: Path | None = None, **settings: str) -> AsyncIterator[Client]:
    texts = {key.replace("_", "."): value for key, value in settings.items()}
    async with running(None if data is None else str(data), {**SECURED, **texts}) as client:
        yield client


async def test_acls_are_disabled_without_an_authorizer(client: Client) -> None:
    assert await create(client, creation()) == [KafkaErrorCode.SECURITY_DISABLED]
    response = await client.call(filters(DescribeAclsRequest))
    assert (response.error_code, response.error_message) == (54, "No Authorizer is configured.")
    assert (await client.call(DeleteAclsRequest(filters=[filters(Filter)]))).filter_results[0].error_code == 54


async def test_acls_are_stored_as_by_acl_authorizer(tmp_path: Path) -> None:
    async with secured(tmp_path) as client:
        creations = [
            creation(),
            creation(operation=WRITE, host="10.0.0.1"),
            creation("pay", resource_pattern_type=PatternType.PREFIXED, permission_type=PermissionType.DENY),
            creation("tx", resource_type=AclResourceType.TRANSACTIONAL_ID, operation=AclOperation.DESCRIBE_CONFIGS),
        ]
        assert await create(client, *creations) == [0, 0, 0, 0]
        alice = b'{"principal":"User:alice","permissionType":"%s","operation":"%s","host":"%s"}'
        assert nodes(client) == {
            "/kafka-acl/Topic/orders": b'{"version":1,"acls":[%s,%s]}'
            % (alice % (b"Allow", b"Read", b"*"), alice % (b"Allow", b"Write", b"10.0.0.1")),
            "/kafka-acl-extended/prefixed/Topic/pay": b'{"version":1,"acls":[%s]}' % (alice % (b"Deny", b"Read", b"*")),
            "/kafka-acl/TransactionalId/tx": b'{"version":1,"acls":[%s]}'
            % (alice % (b"Allow", b"DescribeConfigs", b"*")),
        }
        assert allows(client, "orders")
        assert not allows(client, "payments")
    async with secured(tmp_path) as client:  # before the first connection they are read
        assert allows(client, "orders")
        assert await delete(client, resource_name_filter="orders") == [
            ("orders", "User:alice", READ),
            ("orders", "User:alice", WRITE),
        ]
        assert not allows(client, "orders")
        assert "/kafka-acl/Topic/orders" not in nodes(client)


async def test_describe_and_delete_select_by_filters() -> None:
    async with secured() as client:
        bob = creation("ord", principal="User:bob", resource_pattern_type=PatternType.PREFIXED)
        await create(client, creation(), bob, creation("*", operation=WRITE), creation("g", resource_type=GROUP))
        literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
        assert len(await described(client)) == 4
        matching = await described(
            client, resource_name_filter="orders", pattern_type_filter=PatternType.MATCH, resource_type_filter=TOPIC
        )
        assert matching == [
            ("*", literal, "User:alice", WRITE),
            ("ord", prefixed, "User:bob", READ),
            ("orders", literal, "User:alice", READ),
        ]
        assert await delete(client, principal_filter="User:bob") == [("ord", "User:bob", READ)]
        assert await delete(client, principal_filter="User:bob") == []
        first, second = (
            await client.call(
                DeleteAclsRequest(
                    filters=[filters(Filter, operation=WRITE), filters(Filter, resource_type_filter=TOPIC)]
                )
            )
        ).filter_results
        assert [each.resource_name for each in first.matching_acls] == ["*"]
        assert [each.resource_name for each in second.matching_acls] == ["orders"]
        assert [name for name, *_ in await described(client)] == ["g"]


async def test_invalid_acls_are_refused_one_by_one() -> None:
    async with secured() as client:
        refused = [
            creation(""),
            creation("a/b"),
            creation("."),
            creation("cluster", resource_type=CLUSTER),
            creation(resource_type=AclResourceType.ANY),
            creation(resource_pattern_type=PatternType.MATCH),
            creation(operation=AclOperation.ANY),
            creation(operation=99),
            creation(permission_type=PermissionType.ANY),
            creation(principal="alice"),
        ]
        assert await create(client, *refused, creation()) == [INVALID] * len(refused) + [0]
        assert [name for name, *_ in await described(client)] == ["orders"]
        response = await client.call(filters(DescribeAclsRequest, operation=77))
        assert response.error_code == INVALID
        deletions = DeleteAclsRequest(filters=[filters(Filter), filters(Filter, resource_type_filter=99)])
        assert [each.error_code for each in (await client.call(deletions)).filter_results] == [INVALID, INVALID]
        assert len(await described(client)) == 1


async def test_the_requests_need_rights_on_the_cluster() -> None:
    settings = {**SECURED, "super.users": "User:root"}
    async with running(settings=settings) as client:
        assert await create(client, creation()) == [DENIED]
        assert (await client.call(filters(DescribeAclsRequest))).error_code == DENIED
        deletions = DeleteAclsRequest(filters=[filters(Filter)])
        assert (await client.call(deletions)).filter_results[0].error_code == DENIED


async def test_ten_thousand_acls_of_one_request_are_stored() -> None:
    async with secured() as client:
        creations = [creation(f"topic-{index % 100}", principal=f"User:{index}") for index in range(10_000)]
        assert await create(client, *creations) == [0] * 10_000
        assert len(await described(client)) == 10_000
        assert len(nodes(client)) == 100


async def test_a_node_that_cannot_be_read_denies_its_resource(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with secured(tmp_path) as client:
        await create(client, creation(), creation("other"))
        invalid = b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Never"}]}'
        client.broker.metadata.multi([Set("/kafka-acl/Topic/orders", invalid)], lambda outcome: outcome.result())
    async with secured(tmp_path, allow_everyone_if_no_acl_found="true") as client:
        assert not allows(client, "orders")
        assert allows(client, "other")
        assert "all access to Topic:LITERAL:orders is denied" in caplog.text
        assert await create(client, creation(operation=WRITE)) == [INVALID]


async def test_the_audit_log_has_the_lines_of_kafka(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kafkalite.authorizer")
    async with secured() as client:
        await create(client, creation())
        allows(client, "orders")
        allows(client, "orders", WRITE)
    lines = [record.getMessage() for record in caplog.records if record.name == "kafkalite.authorizer"]
    assert lines == [
        "Principal = User:ANONYMOUS is Allowed operation = ALTER from host = 127.0.0.1 on resource = "
        "Cluster:LITERAL:kafka-cluster for request = CreateAcls with resourceRefCount = 1 based on rule SuperUser",
        "Principal = User:ANONYMOUS from host = 127.0.0.1 has created ACL StandardAcl(resourceType=TOPIC, "
        "resourceName=orders, patternType=LITERAL, principal=User:alice, host=*, operation=READ, permissionType=ALLOW)",
        "Principal = User:alice is Allowed operation = READ from host = 127.0.0.1 on resource = Topic:LITERAL:orders "
        "for request = Fetch with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl(resourceType=TOPIC, "
        "resourceName=orders, patternType=LITERAL, principal=User:alice, host=*, operation=READ, "
        "permissionType=ALLOW))",
        "Principal = User:alice is Denied operation = WRITE from host = 127.0.0.1 on resource = Topic:LITERAL:orders "
        "for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny",
    ]
    assert caplog.records[-1].fields["allowed"] is False  # type: ignore[attr-defined]


class DenyAll:
    """A user-defined authorizer."""

    version = 0

    def decide(self, *_question: object) -> Decision:
        return Decision(allowed=False, rule="Never")

    def allows_any(self, *_question: object) -> bool:
        return False


async def test_the_audit_log_is_bounded_per_principal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafkalite.authorizer")
    clock = VirtualClock()
    audited = AuditedAuthorizer(DenyAll(), clock)
    for principal in (ALICE, Principal("User", "bob")):
        authorization = Authorization(audited, principal, "h", "Fetch")
        for _ in range(audit_log.LINES_PER_S + (7 if principal == ALICE else 0)):
            authorization.allows(READ, TOPIC, "orders")
    assert len(caplog.records) == 2 * audit_log.LINES_PER_S
    clock.advance(1000 * audit_log.PERIOD_S)
    assert caplog.records[-1].getMessage() == (
        "Principal = User:alice: 7 more decisions within a second were not logged"
    )
    authorization.allows(READ, TOPIC, "orders")
    assert "based on rule Never" in caplog.records[-1].getMessage()


class FoundEntryPoint:
    """An installed authorizer."""

    name = "deny-all"

    def load(self) -> Any:
        return lambda configs: DenyAll() if "super.users" not in configs else object()


async def test_a_user_defined_authorizer_is_an_entry_point(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr("kafkalite.config.authorizer.entry_points", lambda group: [FoundEntryPoint()])
    installed_authorizers.cache_clear()
    request.addfinalizer(installed_authorizers.cache_clear)
    async with running(settings={"authorizer.class.name": "deny-all"}) as client:
        assert not allows(client, "orders")
        assert (await client.call(filters(DescribeAclsRequest))).error_code == DENIED
    with pytest.raises(Exception, match="is no authorizer: it has no version, decide, allows_any"):
        async with Broker(None, {"authorizer.class.name": "deny-all", "super.users": "User:a"}):
            pytest.fail("started")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"authorizer.class.name": "com.example.Mine"}, "com.example.Mine: Java classes cannot be loaded"),
        ({"authorizer.class.name": "mine"}, "there is no such entry point; expected one of kafka.security"),
        ({"super.users": "user:alice"}, "no principal has the type 'user', expected User:alice"),
        ({"super.users": "User:alice;bob"}, "'bob': expected TYPE:NAME, such as User:bob"),
    ],
)
def test_wrong_settings_are_refused_before_the_ports_open(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig(settings)


def test_super_users_may_have_semicolons_around() -> None:
    config = BrokerConfig({"super.users": " User:CN=a,O=b ; User:c;", "authorizer.class.name": STANDARD})
    assert config.super_users == (Principal("User", "CN=a,O=b"), Principal("User", "c"))


async def test_described_operations_are_those_that_the_client_may_do(client: Client) -> None:
    authorizer = StandardAuthorizer()
    authorizer.replace(ResourcePattern(TOPIC, "orders"), [Acl("User:ANONYMOUS", "*", READ, PermissionType.ALLOW)])
    authorizer.replace(ResourcePattern(GROUP, "*"), [Acl("User:*", "*", AclOperation.DELETE, PermissionType.ALLOW)])
    cluster = ResourcePattern(CLUSTER, CLUSTER_NAME)
    authorizer.replace(cluster, [Acl("User:*", "*", AclOperation.CREATE, PermissionType.ALLOW)])
    await client.create("orders")
    client.broker.authorizer = AuditedAuthorizer(authorizer, client.broker.clock)
    read, describe, delete = (1 << each for each in (READ, AclOperation.DESCRIBE, AclOperation.DELETE))
    wanted = [MetadataRequest.MetadataRequestTopic(name="orders")]
    metadata = await client.call(
        MetadataRequest(
            topics=wanted, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
        ),
        10,
    )
    assert metadata.topics[0].topic_authorized_operations == read | describe
    assert metadata.cluster_authorized_operations == 0  # without Describe on the cluster, as in Kafka
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name="orders")]
    partitions = await client.call(DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=9))
    assert partitions.topics[0].topic_authorized_operations == read | describe
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert (await client.call(request)).cluster_authorized_operations == 0
    groups = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    assert (await client.call(groups, 5)).groups[0].authorized_operations == delete | describe
