"""The test kit runs Apache Kafka 3.9 with ZooKeeper: records survive a kill of the broker."""

from pathlib import Path

import pytest

from tests.compat.conftest import topic_maker
from tests.kit import jvm
from tests.kit.brokers import broker_under_test
from tests.kit.clients import AioKafka, Record


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"{jvm.java_missing()}")
def test_records_survive_a_kill(tmp_path: Path) -> None:
    with broker_under_test(tmp_path, against="kafka-zookeeper") as broker:
        topic = topic_maker(broker.address, "zookeeper")()
        client = AioKafka()
        (written,) = client.write(broker.address, topic, [Record(b"before the kill")])
        broker.kill()
        broker.start()
        (read,) = client.read(broker.address, topic, 1)
        assert (read.value, read.offset) == (written.value, written.offset)
