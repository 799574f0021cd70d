"""Apache Kafka's own tools, 4.4 and 3.9: the console pair in every codec, and what an administrator types.

Each start of a tool costs a Java process, so a test is one longer story.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.compat.conftest import MakeTopic, unused_name
from tests.compat.disk import batches_on_disk
from tests.compat.test_codecs import CODECS, lines
from tests.kit.brokers import Broker, wait_until
from tests.kit.clients import PYTHON_CLIENTS, Confluent, Record
from tests.kit.clients.java import JavaTools
from tests.kit.clients.model import Refused

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


def contents(records: list[Record]) -> list[object]:
    return [(record.offset, *record.content()) for record in records]


def test_console_tools_and_all_codecs(broker: Broker, java: JavaTools, topic: str) -> None:
    """Written by Java and the Python clients in every codec, read by Java and the Python clients."""
    sent: list[Record] = []
    for codec in CODECS:
        java.write(topic, lines("java", codec), codec=codec)
        sent += lines("java", codec)
    for writer in PYTHON_CLIENTS:
        for codec in CODECS:
            sent += writer.write(broker.address, topic, lines(writer.name, codec), codec=codec)
    expected = contents([record.at(offset) for offset, record in enumerate(sent)])
    assert {batch.codec for batch in batches_on_disk(broker.log_dir(topic), topic)} == set(CODECS)
    assert contents(java.read(topic, len(sent))) == expected
    for reader in PYTHON_CLIENTS:
        assert contents(reader.read(broker.address, topic, len(sent))) == expected, reader.name


def test_console_tools_and_odd_records(java: JavaTools, new_topic: MakeTopic) -> None:
    """Tombstones, empty values, headers; acks 0 and 1; a compacted topic; from an offset of one partition."""
    topic = new_topic(**{"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"})
    sent = [
        Record(b"v", b"k", (("h", b"1"), ("h", b"2"))),
        Record(
            None,
            b"gone",
            (("why", b"empty"),),
        ),
        Record(b"", b"e", (("x", b"y"),)),
    ]
    java.write(topic, sent, acks="1")
    java.write(topic, sent, acks="0")
    read = java.read(topic, 4, start=2)
    assert [record.content() for record in read] == [record.content() for record in sent[2:] + sent]
    assert [record.offset for record in read] == [2, 3, 4, 5]


def test_topics_and_configs(broker: Broker, java: JavaTools) -> None:
    """kafka-topics and kafka-configs: create, list, describe, alter, delete, and their refusals."""
    name = unused_name("typed-by-hand")
    made = ["--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=1000000"]
    assert f"Created topic {name}." in java.run("topics", *made)
    assert name in java.run("topics", "--list").split()
    described = java.run("topics", "--describe", "--topic", name)
    assert re.search(
        rf"Topic: {name}\s+TopicId: [\w-]{{22}}\s+PartitionCount: 2\s+ReplicationFactor: 1\s+Configs:", described
    )
    assert "retention.ms=1000000" in described
    assert re.search(r"Partition: 1\s+Leader: (\d)\s+Replicas: \1\s+Isr: \1", described)
    with pytest.raises(Refused, match=f"Topic '{name}' already exists"):
        java.run("topics", *made)

    entity = ["--entity-type", "topics", "--entity-name", name]
    added = "max.message.bytes=5000,cleanup.policy=[compact,delete]"
    assert f"Completed updating config for topic {name}." in java.run(
        "configs", "--alter", *entity, "--add-config", added
    )
    java.run("configs", "--alter", *entity, "--delete-config", "retention.ms")
    shown = java.run("configs", "--describe", *entity)
    synonyms = "{DYNAMIC_TOPIC_CONFIG:max.message.bytes=5000, DEFAULT_CONFIG:message.max.bytes=1048588}"
    assert f"max.message.bytes=5000 sensitive=false synonyms={synonyms}" in shown
    assert "cleanup.policy=compact,delete" in shown
    assert "retention.ms" not in shown
    with pytest.raises(Refused, match=r"InvalidConfigurationException|InvalidRequestException"):
        java.run("configs", "--alter", *entity, "--add-config", "max.message.bytes=-5")

    java.run("topics", "--alter", "--topic", name, "--partitions", "4")
    assert "PartitionCount: 4" in java.run("topics", "--describe", "--topic", name)
    with pytest.raises(Refused, match="InvalidPartitionsException"):
        java.run("topics", "--alter", "--topic", name, "--partitions", "3")
    java.run("topics", "--delete", "--topic", name)
    wait_until(lambda: name not in java.run("topics", "--list").split(), "the topic's end")


def test_offsets_and_deleted_records(broker: Broker, java: JavaTools, new_topic: MakeTopic, tmp_path: Path) -> None:
    """kafka-get-offsets by place and time, kafka-delete-records, kafka-log-dirs."""
    topic = new_topic(partitions=2, **{"retention.ms": "-1"})  # the records are of 2023
    records = [Record(b"x", timestamp_ms=START_MS + hour * HOUR_MS) for hour in (0, 3, 2, 1)]
    Confluent().write(broker.address, topic, records)
    these = ["--topic", topic]
    assert java.offsets(*these) == {(topic, 0): 4, (topic, 1): 0}
    assert java.offsets(*these, "--time", "earliest") == {(topic, 0): 0, (topic, 1): 0}
    assert java.offsets(*these, "--time", "max-timestamp")[topic, 0] == 1
    assert java.offsets(*these, "--time", str(START_MS + HOUR_MS), "--partitions", "0") == {(topic, 0): 1}

    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 3}]}))
    assert f"partition: {topic}-0\tlow_watermark: 3" in java.run("delete-records", "--offset-json-file", str(wanted))
    assert java.offsets(*these, "--time", "earliest")[topic, 0] == 3

    said = java.run("log-dirs", "--describe", "--topic-list", topic)
    found = json.loads(said.splitlines()[-1])
    directories = [directory for each in found["brokers"] for directory in each["logDirs"]]
    assert [each["error"] for each in directories] == [None] * len(broker.ids)
    assert {each["logDir"] for each in directories} == {str(each) for each in broker.log_dirs}
    sizes = {p["partition"]: p["size"] for directory in directories for p in directory["partitions"]}
    assert sizes == {
        f"{topic}-0": sum(f.stat().st_size for f in (broker.log_dir(topic) / f"{topic}-0").glob("*.log")),
        f"{topic}-1": 0,
    }


def test_api_versions_and_cluster_tools(java: JavaTools, address: str) -> None:
    """kafka-broker-api-versions and kafka-cluster."""
    said = java.run("broker-api-versions")
    broker = rf"{re.escape(address)} \(id: 1 rack: null( isFenced: false)?\) -> \("
    assert re.search(broker, said)
    for key in ("Produce(0): 0 to 13", "Fetch(1): 4 to 18", "Metadata(3): 0 to 13", "ApiVersions(18): 0 to 4"):
        assert key in said, said
    assert "UNSUPPORTED" not in said.split("Metadata(3)")[0]


def test_broker_configs(java: JavaTools) -> None:
    """A dynamic broker key is set, described with its source, and removed."""
    entity = ["--entity-type", "brokers", "--entity-name", "1"]
    java.run("configs", "--alter", *entity, "--add-config", "log.retention.ms=123456789")

    def shown() -> str:
        return java.run("configs", "--describe", *entity)

    wait_until(
        lambda: (
            "log.retention.ms=123456789 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=123456789"
            in shown()
        ),
        "the new value",
    )
    java.run("configs", "--alter", *entity, "--delete-config", "log.retention.ms")
    wait_until(lambda: "123456789" not in shown(), "the default again")
    with pytest.raises(Refused, match=r"log\.dirs"):
        java.run("configs", "--alter", *entity, "--add-config", "log.dirs=/elsewhere")
