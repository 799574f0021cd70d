"""The producer and the simple consumer of the ZooKeeper era on Apache Kafka 3.9, whose brokers are in its ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from kafkalite_sdk import Consumer
from kafkalite_sdk.zk import KeyedMessage, PartitionFetch, Producer, SimpleConsumer
from kafkalite_sdk.zk.producer.partitioner import default_partition

from kafkalite.cli.main import main
from tests.compat.conftest import topic_maker
from tests.kit import jvm
from tests.kit.brokers import ApacheKafkaZooKeeper, broker_under_test

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}"),
    pytest.mark.xdist_group("kafka-zookeeper"),
]
PARTITIONS, RECORDS, DEADLINE_S = 4, 40, 60.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafkaZooKeeper]:
    with broker_under_test(tmp_path_factory.mktemp("era"), {}, "kafka-zookeeper") as running:
        assert isinstance(running, ApacheKafkaZooKeeper)
        yield running


def test_records_of_the_producer_are_read_by_both_consumers(kafka: ApacheKafkaZooKeeper) -> None:
    topic = topic_maker(kafka.address, "era")(PARTITIONS)
    tree = f"zookeeper://{kafka.zookeeper.address}"
    keys = [f"key {each}" for each in range(RECORDS)]

    async def run() -> None:
        async with Producer(kafka.zookeeper.address, request_required_acks=-1) as producer:
            sent = await producer.send([KeyedMessage(topic, key, key) for key in keys])
        assert [each.partition for each in sent] == [default_partition(key, PARTITIONS) for key in keys]
        host, port = kafka.address.rsplit(":", 1)
        async with SimpleConsumer(host, int(port)) as simple:
            found = await simple.fetch([PartitionFetch(topic, each, 0) for each in range(PARTITIONS)], max_wait=500)
            assert {record.value for part in found for record in part.result()} == {key.encode() for key in keys}
            for part in found:
                offsets = await simple.get_offsets_before(topic, part.partition, -1, 10)
                assert offsets == sorted({0, part.high_watermark}, reverse=True)
        async with Consumer(tree, group="era", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(topic)
            values: set[bytes | None] = set()
            async with asyncio.timeout(DEADLINE_S):
                while len(values) < RECORDS:
                    values.update(each.value for each in await consumer.poll(5.0))

    asyncio.run(run())
    listed = CliRunner().invoke(main, ["topic", "list", "-b", tree])
    assert listed.exit_code == 0 and topic in listed.output
