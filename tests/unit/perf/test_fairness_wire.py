"""The requests of the hostile loads, read by kio's declarations, which are generated from Apache Kafka's."""

import io
import struct
from datetime import timedelta
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v3 import response as list_offsets
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta

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


def test_errors_of_listed_offsets_are_those_of_all_partitions() -> None:
    topics = tuple(
        list_offsets.ListOffsetsTopicResponse(
            name=TopicName(name),
            partitions=tuple(
                list_offsets.ListOffsetsPartitionResponse(partition_index=i32(index), error_code=ErrorCode(code))
                for index, code in enumerate(codes)
            ),
        )
        for name, codes in (("a", (0, 5)), ("b", (0, 3, 0)))
    )
    none = i32Timedelta.parse(timedelta(0))
    response = io.BytesIO()
    entity_writer(list_offsets.ListOffsetsResponse)(
        response, list_offsets.ListOffsetsResponse(throttle_time=none, topics=topics)
    )
    assert wire.listed(bytes(4) + response.getvalue()) == {0, 3, 5}


def test_pattern_of_consumer_member() -> None:
    request = parsed("consumer_group_heartbeat.v1")
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (None, "a.*")


def test_gzip_batch_is_read_by_aiokafka() -> None:
    records = MemoryRecords(wire.gzip_batch(b"v" * 10_000))
    batch = records.next_batch()
    assert batch is not None and batch.validate_crc()
    assert [(record.key, record.value) for record in batch] == [(b"k", b"v" * 10_000)]
