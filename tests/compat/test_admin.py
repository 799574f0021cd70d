"""Topics, configs, partitions and deleted records through the Python admin clients: their common ground.

Apache Kafka answers an administrator when its controller has decided; its broker learns it a moment later. So what a
change brought is awaited, what a refusal left is asserted.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.conftest import MakeTopic, unused_name
from tests.kit.brokers import Broker, wait_until
from tests.kit.clients import PYTHON_CLIENTS, Confluent, Record
from tests.kit.clients.admin import ADMINS, Admin
from tests.kit.clients.model import Refused

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC_EXCEPTION = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40


@pytest.fixture(params=ADMINS, ids=lambda kind: kind.name)
def admin(request: pytest.FixtureRequest, address: str) -> Iterator[Admin]:
    """Each Python admin client in turn."""
    with request.param(address) as open_admin:
        yield open_admin


def test_topic_is_created_changed_and_deleted(broker: Broker, address: str, admin: Admin) -> None:
    """Created, listed, described, written, grown, emptied, deleted; and then it is gone."""
    name = unused_name("life-of-a-topic")
    admin.create(name, partitions=2, configs={"retention.ms": "-1"})
    wait_until(lambda: name in admin.topics(), "the new topic")
    replicas = admin.partitions(name)
    assert replicas.keys() == {0, 1}
    assert all(len(each) == 1 and each[0] in broker.ids for each in replicas.values()), "each is on one broker"
    PYTHON_CLIENTS[0].write(address, name, [Record(b"x", partition=n % 2) for n in range(20)])

    admin.grow(name, 5)
    wait_until(lambda: sorted(admin.partitions(name)) == [0, 1, 2, 3, 4], "five partitions")
    PYTHON_CLIENTS[0].write(address, name, [Record(b"y", partition=4)])

    assert admin.delete_records(name, 0, before=7) == 7
    assert PYTHON_CLIENTS[0].bounds(address, name) == (7, 10)
    assert admin.delete_records(name, 1, before=-1) == 10, "-1 is the high watermark"
    assert PYTHON_CLIENTS[0].bounds(address, name, 1) == (10, 10)

    admin.delete(name)
    wait_until(lambda: name not in admin.topics(), "the topic's end")


def test_invalid_topics_are_rejected(admin: Admin, topic: str) -> None:
    refused = [
        (TOPIC_ALREADY_EXISTS, topic, 1, 1, {}),
        (INVALID_TOPIC_EXCEPTION, "a/b", 1, 1, {}),
        (INVALID_TOPIC_EXCEPTION, "..", 1, 1, {}),
        (INVALID_TOPIC_EXCEPTION, "x" * 250, 1, 1, {}),
        (INVALID_PARTITIONS, unused_name("no-partitions"), 0, 1, {}),
        (INVALID_REPLICATION_FACTOR, unused_name("too-many-replicas"), 1, 3, {}),
        (INVALID_REPLICATION_FACTOR, unused_name("no-replica"), 1, 0, {}),
        (INVALID_CONFIG, unused_name("bad-value"), 1, 1, {"retention.ms": "soon"}),
        (INVALID_CONFIG, unused_name("bad-key"), 1, 1, {"no.such.key": "1"}),
        (INVALID_CONFIG, unused_name("bad-policy"), 1, 1, {"cleanup.policy": "shred"}),
    ]
    for code, name, partitions, replicas, configs in refused:
        with pytest.raises(Refused) as refusal:
            admin.create(name, partitions=partitions, replicas=replicas, configs=configs)
        assert refusal.value.code == code, (name, refusal.value)
        assert name == topic or name not in admin.topics()


def test_topic_names_that_collide_are_rejected(admin: Admin) -> None:
    """`a.b` and `a_b` would share a metric name."""
    name = unused_name("with.dots")
    admin.create(name, partitions=1)
    with pytest.raises(Refused) as refusal:
        admin.create(name.replace(".", "_"), partitions=1)
    assert refusal.value.code == INVALID_TOPIC_EXCEPTION


def test_validate_only_creates_no_topic(admin: Admin, topic: str) -> None:
    name = unused_name("only-validated")
    admin.create(name, partitions=1, validate_only=True)
    assert name not in admin.topics()
    admin.grow(topic, 3, validate_only=True)
    assert sorted(admin.partitions(topic)) == [0]
    with pytest.raises(Refused) as refusal:
        admin.create(topic, partitions=1, validate_only=True)
    assert refusal.value.code == TOPIC_ALREADY_EXISTS


def test_manual_replica_assignment(admin: Admin) -> None:
    name = unused_name("placed-by-hand")
    admin.create(name, assignment={0: [1], 1: [1], 2: [1]})
    wait_until(lambda: name in admin.topics(), "the new topic")
    assert admin.partitions(name) == {0: [1], 1: [1], 2: [1]}


def test_unknown_topics_and_configs_are_rejected(admin: Admin, new_topic: MakeTopic) -> None:
    three = new_topic(partitions=3)
    deeds = [
        (UNKNOWN_TOPIC_OR_PARTITION, lambda: admin.delete("never-made")),
        (UNKNOWN_TOPIC_OR_PARTITION, lambda: admin.grow("never-made", 2)),
        (INVALID_PARTITIONS, lambda: admin.grow(three, 3)),
        (INVALID_PARTITIONS, lambda: admin.grow(three, 2)),
        (OFFSET_OUT_OF_RANGE, lambda: admin.delete_records(three, 0, before=1)),
    ]
    for code, deed in deeds:
        with pytest.raises(Refused) as refusal:
            deed()
        assert refusal.value.code == code, refusal.value
    assert sorted(admin.partitions(three)) == [0, 1, 2]


def test_configs_are_changed_and_described(admin: Admin, new_topic: MakeTopic) -> None:
    """Set, seen with its source, removed, the default again."""
    topic = new_topic(**{"retention.ms": "1000000"})
    assert admin.config(topic, "retention.ms") == ("1000000", "DYNAMIC_TOPIC_CONFIG")
    assert admin.config(topic, "cleanup.policy") == ("delete", "DEFAULT_CONFIG")
    admin.set_config(topic, "retention.ms", "2000000")
    changed = ("2000000", "DYNAMIC_TOPIC_CONFIG")
    wait_until(lambda: admin.config(topic, "retention.ms") == changed, "the new value")
    with pytest.raises(Refused) as refusal:
        admin.set_config(topic, "retention.ms", "soon")
    assert refusal.value.code == INVALID_CONFIG
    assert admin.config(topic, "retention.ms") == changed


def test_a_changed_config_takes_effect(address: str, admin: Admin, topic: str) -> None:
    writer = Confluent()
    writer.write(address, topic, [Record(bytes(5000))])
    for allowed, value in (("1000", False), ("10000", True)):
        admin.set_config(topic, "max.message.bytes", allowed)
        wait_until(lambda: admin.config(topic, "max.message.bytes")[0] == allowed, "the new value")  # noqa: B023
        wait_until(lambda: taken(writer, address, topic, bytes(5000)) is value, "its effect")  # noqa: B023


def taken(writer: Confluent, address: str, topic: str, value: bytes) -> bool:
    """Whether the broker appends this value."""
    try:
        writer.write(address, topic, [Record(value)])
    except Refused as refusal:
        assert refusal.code == MESSAGE_TOO_LARGE
        return False
    return True
