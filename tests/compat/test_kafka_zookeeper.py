"""The SDK with Apache Kafka 3.9 in ZooKeeper mode, which has no consumer protocol: ConsumerGroupHeartbeat v0 only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import confluent_kafka as ck
import pytest
from kafkalite_sdk import Admin, Consumer, Producer
from kafkalite_sdk.rpc import Connection

from kafkalite.errors import BrokerResponseError, KafkaErrorCode
from tests.compat.conftest import topic_maker
from tests.compat.test_groups_migration import type_of
from tests.kit import jvm
from tests.kit.brokers import Broker, broker_under_test
from tests.kit.clients import AioKafka, Record
from tests.kit.clients.groups import EACH, PARTITIONS, commit_all, partitions_of, write
from tests.kit.clients.members import AIO, EAGER, Crowd, Kind, Wish
from tests.kit.clients.sdk import SDK_RANGE, Sdk, SdkMember

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("kafka-zookeeper"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
SDK_DEFAULT = Kind("sdk-default", SdkMember)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"group.min.session.timeout.ms": "500"}
    with broker_under_test(tmp_path_factory.mktemp("zookeeper"), settings, "kafka-zookeeper") as running:
        yield running


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_of_both_clients(kafka: Broker, codec: str) -> None:
    topic = topic_maker(kafka.address, "records")()
    sent = [Record(b"value", b"key", (("name", b"value"), ("empty", b""))), Record(None, b"tombstone"), Record(b"")]
    written = []
    for writer in (Sdk(), AioKafka()):
        written += writer.write(kafka.address, topic, sent, codec=codec, idempotent=True)
    for reader in (Sdk(), AioKafka()):
        assert [each.content() for each in reader.read(kafka.address, topic, 6)] == [
            each.content() for each in sent * 2
        ]
    assert [each.offset for each in written] == list(range(6))


def test_records_survive_a_kill(kafka: Broker) -> None:
    topic = topic_maker(kafka.address, "kill")()
    (written,) = Sdk().write(kafka.address, topic, [Record(b"before the kill")])
    kafka.kill()
    kafka.start()
    (read,) = Sdk().read(kafka.address, topic, 1)
    assert (read.value, read.offset) == (written.value, written.offset)


def test_default_protocol_is_classic(kafka: Broker) -> None:
    """Members of the SDK share a group with librdkafka and aiokafka."""
    topic = topic_maker(kafka.address, "group")(PARTITIONS)
    wish, everything = Wish("default", (topic,)), partitions_of(topic)
    with Crowd(kafka.address) as crowd:
        members = [crowd.join(SDK_DEFAULT, wish)]
        crowd.share(everything, *members)
        assert type_of(kafka.address, wish.group) == ck.ConsumerGroupType.CLASSIC
        members[0].leave()
        members = [crowd.join(kind, wish) for kind in (SDK_RANGE, EAGER, AIO)]
        crowd.share(everything, *members)
        crowd.read(write(kafka.address, topic), *members)
        commit_all(members, everything, EACH)


async def test_consumer_protocol_is_unsupported(kafka: Broker) -> None:
    topic = await asyncio.to_thread(topic_maker(kafka.address, "unsupported"))
    async with Consumer(kafka.address, group="unsupported", group_protocol="consumer") as consumer:
        consumer.subscribe(topic)
        with pytest.raises(BrokerResponseError) as raised:
            async with asyncio.timeout(60):
                while True:
                    await consumer.poll(1.0)
    assert raised.value.code == KafkaErrorCode.UNSUPPORTED_VERSION


async def test_offsets_before_and_administration(kafka: Broker) -> None:
    """ListOffsets v0 has the answers that kafkalite gives with ListSegments (`test_sdk_admin`)."""
    topic = await asyncio.to_thread(topic_maker(kafka.address, "segments"), **{"segment.bytes": str(1 << 20)})
    async with Producer(kafka.address, max_request_size=1 << 20) as producer:
        for _ in range(3):
            await producer.send(topic, bytes(700_000))
    async with Connection(kafka.address) as connection:
        assert await connection.offsets_before(topic, 0, -1, 9) == [3, 2, 1, 0]
        assert await connection.offsets_before(topic, 0, -1, 2) == [3, 2]
        assert await connection.offsets_before(topic, 0, -2, 9) == [0]
    async with Admin(kafka.address) as admin:
        (await admin.topics.create_partitions({topic: 2})).check()
        described = (await admin.topics.describe(topic))[topic]
        assert described.partitions[0].leader == (await admin.cluster.describe()).controller
        (await admin.topics.delete(topic)).check()
