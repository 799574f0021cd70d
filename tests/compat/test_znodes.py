"""The nodes in ZooKeeper after the same steps at kafkalite and at Apache Kafka 3.9, node by node.

Equal means: the same paths, the same parsed JSON with the same types, null data in the same nodes, and the same nodes
ephemeral. What must differ is in DIFFERENT; only kafkalite has the nodes below ONLY_KAFKALITE.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkalite.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.kit import jvm
from tests.kit.broker_processes import BrokerProcesses, call
from tests.kit.brokers import ApacheKafkaZooKeeper, broker_under_test, wait_until
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


def tree(zookeeper: str) -> dict[str, tuple[bool, Any]]:
    """Path -> whether it is ephemeral, and its parsed data."""
    client = KazooClient(zookeeper)
    client.start()
    try:
        return dict(walk(client, "/"))
    finally:
        client.stop()
        client.close()


def walk(client: KazooClient, path: str) -> Iterator[tuple[str, tuple[bool, Any]]]:
    """A node and those below it, without those that are deleted meanwhile."""
    try:
        data, stat = client.get(path)
        names = client.get_children(path)
    except NoNodeError:
        return
    yield path, (bool(stat.ephemeralOwner), parsed(path, data, stat.dataLength))
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
    for field in DIFFERENT.get(path, ()):
        found[field] = type(found[field]).__name__
    return json.dumps(found, sort_keys=True)  # 1, 1.0 and true differ in it


def configure_all_brokers(address: str) -> None:
    """The default of all brokers, which librdkafka cannot name."""
    config = AlterConfigsResource.AlterableConfig(name="log.retention.ms", config_operation=0, value="86400000")
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[config])
    (outcome,) = call(address, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert outcome.error_code == 0, outcome


def changed_tree(address: str, zookeeper: str) -> dict[str, tuple[bool, Any]]:
    """The tree after the steps."""
    change(address)
    configure_all_brokers(address)
    found: dict[str, tuple[bool, Any]] = {}

    def complete() -> bool:
        found.clear()
        found.update(tree(zookeeper))
        return not any("plain" in path for path in found) and "/brokers/topics/orders/partitions/4/state" in found

    wait_until(complete, "the topic is deleted, the other one extended")
    return found


def test_nodes_are_those_of_kafka(tmp_path: Path) -> None:
    zookeeper = start_zookeeper(tmp_path / "zookeeper")
    try:
        with BrokerProcesses(tmp_path, {"zookeeper.connect": zookeeper.address}, ids=(1,)) as cluster:
            ours = changed_tree(cluster.bootstrap, zookeeper.address)
    finally:
        zookeeper.kill()
    with broker_under_test(tmp_path / "kafka", None, "kafka-zookeeper") as kafka:
        assert isinstance(kafka, ApacheKafkaZooKeeper)
        theirs = changed_tree(kafka.address, kafka.zookeeper.address)
    own = {path for path in ours if path.startswith(ONLY_KAFKALITE)}
    assert ours.keys() - own == theirs.keys()
    assert [path for path in theirs if ours[path] != theirs[path]] == []
