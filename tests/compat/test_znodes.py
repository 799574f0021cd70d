"""The nodes in ZooKeeper after the same steps at kafkalite and at Apache Kafka 3.9, node by node.

Equal means: the same paths, the same parsed JSON with the same types, null data in the same nodes, the same nodes
ephemeral, and the same access control lists. Both use TLS with the same settings and the same certificate, which is
the identity. What must differ is in DIFFERENT; only kafkalite has the nodes below ONLY_KAFKALITE.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.kit import jvm
from tests.kit.broker_processes import BrokerProcesses, call
from tests.kit.brokers import wait_until
from tests.kit.certificates import Authority
from tests.kit.clients.confluent import QUIET
from tests.kit.clients.model import DEADLINE_S
from tests.kit.isolated import dropped_later, killable
from tests.kit.zookeeper import start_zookeeper

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("kafka-zookeeper"),
]
AlterConfigsResource = IncrementalAlterConfigsRequest.AlterConfigsResource
BROKER = 4  # type of a resource
ZOOKEEPER_OWN = "/zookeeper"
# The path of a node -> the fields whose values differ by nature; they are compared by type.
DIFFERENT: Mapping[str, tuple[str, ...]] = {
    "/cluster/id": ("id",),  # drawn at random
    "/brokers/ids/1": ("timestamp", "port", "endpoints"),  # time of the start; the port of the process
    "/controller": ("timestamp",),  # time of the election
    "/brokers/topics/orders": ("topic_id",),  # drawn at random
}
ONLY_KAFKALITE = "/kafkalite"  # registered groups and directories, in one subtree


class Node(NamedTuple):
    """What is compared of a node: whether it is ephemeral, (scheme, identity, permissions) of each entry, its data."""

    ephemeral: bool
    acls: frozenset[tuple[str, str, int]]
    data: Any


@killable
def change(address: str) -> None:
    """Topics are created with configs, configured, extended and deleted, and brokers are configured."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": QUIET})
    dropped_later(admin)

    def done(futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            future.result(DEADLINE_S)

    def configure(kind: Any, name: str, **configs: str) -> None:
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in configs.items()
        ]
        done(admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]))

    done(admin.create_topics([NewTopic("orders", 3, 1, config={"retention.ms": "3600000"}), NewTopic("plain", 1, 1)]))
    configure(ConfigResource.Type.TOPIC, "orders", cleanup_policy="compact", retention_ms="7200000")
    done(admin.create_partitions([NewPartitions("orders", 5)]))
    configure(ConfigResource.Type.BROKER, "1", log_cleaner_threads="2")
    done(admin.delete_topics(["plain"]))

    def acl(name: str, pattern: ResourcePatternType, operation: AclOperation, kind: Any = ResourceType.TOPIC) -> Any:
        return AclBinding(kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)

    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    for each in (  # one by one, so that the notifications have the same numbers
        acl("orders", literal, AclOperation.READ),
        acl("orders", literal, AclOperation.ALTER_CONFIGS),
        acl("pay", prefixed, AclOperation.WRITE),
        acl("kafka-cluster", literal, AclOperation.CLUSTER_ACTION, ResourceType.BROKER),
        acl("gone", literal, AclOperation.ALL, ResourceType.GROUP),
        acl("orders", literal, AclOperation.READ),  # exists
    ):
        done(admin.create_acls([each]))
    done(
        admin.delete_acls(
            [AclBindingFilter(ResourceType.GROUP, "gone", literal, None, None, AclOperation.ANY, AclPermissionType.ANY)]
        )
    )


def tree(zookeeper: str, settings: Mapping[str, str]) -> dict[str, Node]:
    """The nodes by path, as a client with the same identity sees them."""
    certificate = settings["zookeeper.ssl.keystore.location"]
    client = KazooClient(
        zookeeper,
        use_ssl=True,
        certfile=certificate,
        keyfile=certificate,
        ca=settings["zookeeper.ssl.truststore.location"],
    )
    client.start(timeout=120)
    try:
        return dict(walk(client, "/"))
    finally:
        client.stop()
        client.close()


def walk(client: KazooClient, path: str) -> Iterator[tuple[str, Node]]:
    """A node and those below it, without those that are deleted meanwhile."""
    try:
        data, stat = client.get(path)
        acls = frozenset((each.id.scheme, each.id.id, each.perms) for each in client.get_acls(path)[0])
        names = client.get_children(path)
    except NoNodeError:
        return
    yield path, Node(bool(stat.ephemeralOwner), acls, parsed(path, data, stat.dataLength))
    for name in names:
        below = f"{path.rstrip('/')}/{name}"
        if below != ZOOKEEPER_OWN:
            yield from walk(client, below)


def parsed(path: str, data: bytes, length: int) -> Any:
    """The data in one order of keys, and with what differs by nature replaced by its type."""
    if not length:
        return None
    try:
        found = json.loads(data)
    except ValueError:
        return data
    if path.startswith(("/kafka-acl/", "/kafka-acl-extended/")):
        found["acls"].sort(key=str)  # Java's order is that of a hash set
    for field in DIFFERENT.get(path, ()):
        found[field] = type(found[field]).__name__
    return json.dumps(found, sort_keys=True)  # 1, 1.0 and true differ in it


def configure_all_brokers(address: str) -> None:
    """The default of all brokers, which librdkafka cannot name."""
    config = AlterConfigsResource.AlterableConfig(name="log.retention.ms", config_operation=0, value="86400000")
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[config])
    (outcome,) = call(address, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert outcome.error_code == 0, outcome


def changed_tree(address: str, zookeeper: str, settings: Mapping[str, str]) -> dict[str, Node]:
    """The tree after the steps."""
    change(address)
    configure_all_brokers(address)
    found: dict[str, Node] = {}

    def complete() -> bool:
        found.clear()
        found.update(tree(zookeeper, settings))
        return not any("plain" in path for path in found) and "/brokers/topics/orders/partitions/4/state" in found

    wait_until(complete, "the topic is deleted, the other one extended")
    return found


def test_nodes_are_those_of_kafka(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    stores = (authority.issue("zookeeper").bundle(), authority.cert)
    zookeeper = start_zookeeper(tmp_path / "zookeeper", tick_ms=3_000, stores=stores)
    settings = {
        "zookeeper.session.timeout.ms": "60000",  # none expires
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "zookeeper.set.acl": "true",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keystore.location": str(authority.issue("broker").bundle()),
        "zookeeper.ssl.truststore.location": str(authority.cert),
    }
    ours_at, theirs_at = (f"{zookeeper.secure_address}/{each}" for each in ("ours", "theirs"))
    try:
        with BrokerProcesses(tmp_path, {"zookeeper.connect": ours_at, **settings}, ids=(1,)) as cluster:
            ours = changed_tree(cluster.bootstrap, ours_at, settings)
        with jvm.start_kafka(
            jvm.PREVIOUS, tmp_path / "kafka", heap="512m", overrides=settings, zookeeper=theirs_at
        ) as kafka:
            theirs = changed_tree(kafka.address, theirs_at, settings)
    finally:
        zookeeper.kill()
    own = {path for path in ours if path.startswith(ONLY_KAFKALITE)}
    assert ours.keys() - own == theirs.keys()
    assert [(path, ours[path], theirs[path]) for path in theirs if ours[path] != theirs[path]] == []
    assert theirs["/config/brokers/1"].acls == {("x509", "CN=broker", 31)}
