"""ACLs against Apache Kafka: its authorizer decides as ours, its tools administer ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest
from kafkalite_sdk import Admin

from kafkalite.model import Principal
from kafkalite.net.client import ClientConnection
from kafkalite.net.sasl.plain import PlainClient
from kafkalite.protocol.messages.create_acls import CreateAclsRequest
from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.delete_acls import DeleteAclsRequest
from kafkalite.protocol.messages.describe_acls import DescribeAclsRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.state.authorizer.acls import (
    SUPPORTED_OPERATIONS,
    Acl,
    AclBinding,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    ResourcePattern,
    bit_field,
)
from kafkalite.state.authorizer.standard import StandardAuthorizer
from tests.kit import jvm
from tests.kit.brokers import Broker, broker_under_test
from tests.kit.clients.java import JAVA_VERSIONS, JavaTools
from tests.kit.secure_kafka import PASSWORD, USER, SecureKafka
from tests.kit.seeds import chosen_seed

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("secure kafka"),
]
ALICE = Principal("User", USER)
HOST = "127.0.0.1"
TOPIC = AclResourceType.TOPIC
TOPICS = ["acl-a", "acl-ab", "acl-abc", "acl-b"]
NAMES = [*TOPICS, "acl-", "a", "*"]
DENIED = 29
QUESTIONS = len(TOPICS) * len(SUPPORTED_OPERATIONS[TOPIC])  # of one ACL set
APPLIED_S = 30.0


def random_binding(random: Random) -> AclBinding:
    pattern = ResourcePattern(TOPIC, random.choice(NAMES), random.choice([PatternType.LITERAL, PatternType.PREFIXED]))
    principal = random.choice([str(ALICE), str(ALICE), "User:*", "User:other"])
    permission = random.choice([PermissionType.DENY, PermissionType.ALLOW, PermissionType.ALLOW])
    operation = random.choice([*SUPPORTED_OPERATIONS[TOPIC], AclOperation.ALL])
    return AclBinding(pattern, Acl(principal, random.choice([HOST, "10.0.0.7", "*", "*"]), operation, permission))


def creation(binding: AclBinding) -> CreateAclsRequest.AclCreation:
    (resource_type, name, pattern_type), acl = binding
    return CreateAclsRequest.AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def connection(address: str, user: str = "") -> ClientConnection:
    host, port = address.split(":")
    return ClientConnection(host, int(port), sasl=PlainClient(user, PASSWORD) if user else None)


async def replace_acls(root: ClientConnection, bindings: set[AclBinding]) -> None:
    """Replace all ACLs of topics, and wait until the broker has applied it."""
    filters = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": PermissionType.ANY,
    }
    deleted = await root.call(DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**filters)]))
    assert deleted.filter_results[0].error_code == 0, deleted
    created = await root.call(CreateAclsRequest(creations=[creation(each) for each in bindings]))
    assert not any(each.error_code for each in created.results), created
    async with asyncio.timeout(APPLIED_S):
        while True:
            response = await root.call(DescribeAclsRequest(**filters))
            if sum(len(each.acls) for each in response.resources) == len(bindings):
                return
            await asyncio.sleep(0)


def operations(ours: StandardAuthorizer, name: str) -> int:
    """What our authorizer allows alice to do with a topic."""
    return bit_field(lambda operation: ours.decide(ALICE, HOST, operation, TOPIC, name).allowed, TOPIC)


async def compare(kafka: SecureKafka, seed: int, sets: int) -> int:
    """Compare what Kafka and our authorizer allow alice; returns the number of questions."""
    random, questions = Random(seed), 0
    async with connection(kafka.plaintext) as root, connection(kafka.sasl_plaintext, USER) as alice:
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            for name in TOPICS
        ]
        await root.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        for index in range(sets):
            bindings = {random_binding(random) for _ in range(random.randint(1, 12))}
            await replace_acls(root, bindings)
            ours = StandardAuthorizer(allow_everyone=True)
            for pattern in {pattern for pattern, _ in bindings}:
                ours.replace(pattern, [acl for each, acl in bindings if each == pattern])
            named = [MetadataRequest.MetadataRequestTopic(name=name) for name in TOPICS]
            request = MetadataRequest(
                topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=True
            )
            response = await alice.call(request, version_max=10)
            for topic in response.topics:
                allowed = operations(ours, topic.name)
                described = bool(allowed & 1 << AclOperation.DESCRIBE)
                context = f"KAFKALITE_SEED={seed}, set {index}, {topic.name}: {sorted(bindings)}"
                assert (topic.error_code != DENIED) == described, context
                if described:
                    assert topic.topic_authorized_operations == allowed, context
                questions += len(SUPPORTED_OPERATIONS[TOPIC])
        await replace_acls(root, set())
    return questions


def test_random_acls_decide_as_kafka(secured_kafka: SecureKafka) -> None:
    assert asyncio.run(compare(secured_kafka, chosen_seed(), 4)) == 4 * QUESTIONS


@pytest.mark.long_form
@pytest.mark.torture
def test_a_thousand_random_questions_are_answered_as_by_kafka(secured_kafka: SecureKafka) -> None:
    assert asyncio.run(compare(secured_kafka, chosen_seed(), 50)) > 1_000


# Kafka's tools at our broker.


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with broker_under_test(tmp_path_factory.mktemp("acls"), settings, against="kafkalite") as running:
        yield running


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_kafka_acls_administers_a_broker(ours: Broker, version: str) -> None:
    tools = JavaTools(version, ours.address)
    tools.run("acls", "--add", "--allow-principal", "User:alice", "--producer", "--topic", "pay", "--force")
    prefixed = ("--resource-pattern-type", "prefixed", "--group", "g-", "--deny-host", "10.0.0.7")
    tools.run("acls", "--add", "--deny-principal", "User:bob", "--operation", "Read", *prefixed)

    async def listed() -> list[tuple[str, str, str, str, str]]:
        async with Admin(ours.address) as admin:
            return [
                (each.principal, each.name, each.operation.name, each.permission.name, each.host)
                for each in await admin.acls.list()
            ]

    bob = ("User:bob", "g-", "READ", "DENY", "10.0.0.7")
    created = [("User:alice", "pay", operation, "ALLOW", "*") for operation in ("WRITE", "CREATE", "DESCRIBE")]
    assert sorted(asyncio.run(listed())) == sorted([*created, bob])
    shown = tools.run("acls", "--list", "--topic", "pay")
    assert "resourceType=TOPIC, name=pay, patternType=LITERAL" in shown
    assert shown.count("permissionType=ALLOW") == 3
    tools.run("acls", "--remove", "--topic", "pay", "--force")
    assert asyncio.run(listed()) == [bob]
    tools.run("acls", "--remove", "--group", "g-", "--resource-pattern-type", "prefixed", "--force")
    assert asyncio.run(listed()) == []
