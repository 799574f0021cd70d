"""The requests of the hostile loads, read by kio's declarations, which are generated from Apache Kafka's."""

import struct
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords
from kio.index import load_request_schema
from kio.serial import entity_reader

from perf.loads.fairness import wire

REQUESTS = {
    "create_topics.v4": wire.create_topics(["a", "b"], 3, {"cleanup.policy": "compact"}),
    "delete_topics.v3": wire.delete_topics(["a", "b"]),
    "metadata.v4": wire.metadata(["a"]),
    "metadata.v12": wire.tagged_metadata(0),
    "describe_configs.v1": wire.describe_configs(["a"], ["k", "l"], 3),
    "describe_log_dirs.v1": wire.describe_log_dirs(),
    "produce.v7": wire.produce("a", {0: b"x", 5: b"yz"}),
    "fetch.v11": wire.fetch({"a": [0, 1]}, session=3, epoch=4, max_wait_ms=5),
    "list_offsets.v3": wire.list_offsets({"a": [0, 1]}),
    "list_groups.v4": wire.list_groups("Empty"),
    "describe_groups.v2": wire.describe_groups(["g", "h"]),
    "delete_groups.v1": wire.delete_groups(["g"]),
    "offset_delete.v0": wire.delete_offsets("g", {"a": [0, 1]}),
    "join_group.v3": wire.join("g", "a", 6_000),
    "sync_group.v2": wire.sync_alone("g", 1, "m"),
    "consumer_group_heartbeat.v1": wire.consumer_join("g", "m", None, "a.*"),
}


def parsed(name: str) -> Any:
    """The request as kio reads it; its size, header and body fit."""
    request = REQUESTS[name]
    size, key, version = struct.unpack_from(">ihh", request)
    assert (size, version) == (len(request) - 4, int(name.rpartition(".v")[2]))
    schema = load_request_schema(key, version)
    assert schema.__name__.lower() == name.partition(".")[0].replace("_", "") + "request"
    head = struct.calcsize(">ihhih") + len(b"perf") + schema.__flexible__
    entity, used = entity_reader(schema)(request, head)
    assert used == len(request) - head
    return entity


@pytest.mark.parametrize("name", REQUESTS)
def test_request_is_read_to_its_end(name: str) -> None:
    parsed(name)


def test_create_topics_names_partitions_and_configs() -> None:
    first, second = parsed("create_topics.v4").topics
    assert (first.name, first.num_partitions, second.name) == ("a", 3, "b")
    assert [(config.name, config.value) for config in first.configs] == [("cleanup.policy", "compact")]


def test_fetch_names_session_and_partitions() -> None:
    request = parsed("fetch.v11")
    assert (request.session_id, request.session_epoch) == (3, 4)
    assert [each.partition for each in request.topics[0].partitions] == [0, 1]


def test_pattern_of_consumer_member() -> None:
    request = parsed("consumer_group_heartbeat.v1")
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (None, "a.*")


def test_gzip_batch_is_read_by_aiokafka() -> None:
    records = MemoryRecords(wire.gzip_batch(b"v" * 10_000))
    batch = records.next_batch()
    assert batch is not None and batch.validate_crc()
    assert [(record.key, record.value) for record in batch] == [(b"k", b"v" * 10_000)]
