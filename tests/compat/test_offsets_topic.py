"""`__consumer_offsets` against Apache Kafka: its tools read what we wrote, and we go on where it stopped.

AGAINST plays no part here: both tests need Apache Kafka itself, and are skipped without Java.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from kafkalite._speedups.storage.file import Disk
from kafkalite.protocol.stored import group_records
from kafkalite.storage.verify.verify import verify_directory
from kafkalite.testing.thread import BrokerThread
from tests.compat.test_stored_records import SETTINGS, TOPICS, check, live, stored
from tests.kit import jvm
from tests.kit.brokers import Kafkalite, wait_until
from tests.kit.clients.confluent import QUIET, create_topics
from tests.kit.clients.model import DEADLINE_S
from tests.kit.isolated import dropped_later, killable

pytestmark = pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka: {jvm.java_missing()}")
OFFSETS = "__consumer_offsets"
GROUPS = ("classic", "consumer", "expiring", "cooperative")
DUMP = "org.apache.kafka.tools.DumpLogSegments"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTER = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"

Offsets = dict[str, dict[tuple[str, int], int]]


def admin(address: str) -> AdminClient:
    client = AdminClient({"bootstrap.servers": address, "log_level": QUIET})
    dropped_later(client)
    return client


@killable
def offsets(address: str) -> Offsets:
    """What each group has committed."""
    client, found = admin(address), {}
    for group in GROUPS:
        asked = [ConsumerGroupTopicPartitions(group)]
        answer = client.list_consumer_group_offsets(asked)[group].result(DEADLINE_S)
        found[group] = {(each.topic, each.partition): each.offset for each in answer.topic_partitions}
    return found


@killable
def groups(address: str) -> dict[str, str]:
    """The groups there are, with their states."""
    client = admin(address)
    listed = client.list_consumer_groups().result(DEADLINE_S)
    return {each.group_id: each.state.name for each in listed.valid}


@contextmanager
def ours_after(directory: Path) -> Iterator[Path]:
    """The data of a broker of ours on which groups of both protocols have lived, stopped."""
    with BrokerThread(str(directory), SETTINGS) as broker:
        create_topics(broker.address, *TOPICS, partitions=2)
        live(broker.address, everything=False)
    yield directory


def test_kafkas_tools_read_our_offsets_topic(tmp_path: Path) -> None:
    with ours_after(tmp_path) as data:
        logs = sorted(data.glob(f"{OFFSETS}-*/*.log"))
        files = ",".join(map(str, logs))
        dumped = jvm.run_tool(jvm.CURRENT, DUMP, ["--offsets-decoder", "--print-data-log", "--files", files])
        assert dumped.returncode == 0, dumped.stderr
        decoded = list(payloads(dumped.stdout))
        written = list(stored(data, OFFSETS))
        assert len(decoded) == len(written) > 20
        found = [check(group_records.RECORDS, record) for record in written]
        assert [key["type"] for key, _ in decoded] == [str(key.type_id) for key, _ in found]
        assert {value is None for _, value in decoded} == {True, False}
    with BrokerThread(str(tmp_path), SETTINGS) as broker:
        shown = formatted(broker.address)
    committed = {
        (key.group, key.topic, key.partition, value.offset, value.metadata)
        for key, value in found
        if isinstance(key, group_records.OffsetCommitKey) and isinstance(value, group_records.OffsetCommitValue)
    }
    assert shown == committed and len(committed) > 3


def payloads(output: str) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Key and value of each record, as `--offsets-decoder` shows them."""
    for line in output.splitlines():
        if line.startswith("| offset:"):
            key, _, payload = line.partition(" key: ")[2].partition(" payload: ")
            assert key and payload, line
            yield json.loads(key), None if payload == "<DELETE>" else json.loads(payload)


def formatted(address: str) -> set[tuple[str, str, int, int, str]]:
    """The commits that Kafka's formatter shows to a console consumer."""
    args = ["--bootstrap-server", address, "--topic", OFFSETS, "--from-beginning", "--formatter", FORMATTER]
    args += ["--timeout-ms", "8000", "--command-property", "exclude.internal.topics=false"]
    done = jvm.run_tool(jvm.CURRENT, CONSOLE, args)
    shown = list(objects(done.stdout))
    assert shown, done.stderr
    return {
        (key["group"], key["topic"], key["partition"], value["offset"], value["metadata"])
        for key, value in ((line["key"]["data"], (line["value"] or {}).get("data")) for line in shown)
        if value is not None
    }


def objects(output: str) -> Iterator[dict[str, Any]]:
    """JSON objects that stand one behind the other."""
    decoder, at = json.JSONDecoder(), 0
    while (at := output.find("{", at)) >= 0:
        found, at = decoder.raw_decode(output, at)
        yield found


def test_adopted_groups_continue_with_kafkas_offsets(tmp_path: Path) -> None:
    """Its directory is adopted: offsets, also those of a transaction, and groups are the same."""
    with jvm.start_kafka(jvm.CURRENT, tmp_path / "kafka", heap="512m", overrides=SETTINGS) as kafka:
        create_topics(kafka.address, *TOPICS, partitions=2)
        live(kafka.address)
        # A consumer that has closed does not wait for the answer to its LeaveGroup.
        wait_until(lambda: set(groups(kafka.address).values()) == {"EMPTY"}, "everybody has left")
        known, there = offsets(kafka.address), groups(kafka.address)
    assert known["classic"] and known["consumer"] and known["expiring"] and there
    ours = Kafkalite(tmp_path / "ours", SETTINGS)
    command = [sys.executable, "-m", "kafkalite", "log", "adopt", str(kafka.data), "--data", str(ours.data)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    ours.start()
    try:
        assert offsets(ours.address) == known
        assert groups(ours.address) == there
        live(ours.address, everything=False)
    finally:
        assert ours.stop() == ours.clean_exit
    assert "skipped" not in ours.said()
    assert verify_directory(Disk(), str(ours.data)) == []
