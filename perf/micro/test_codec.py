"""The message codec beside its plain twin and, where it has the message, kio: `pytest perf/micro/test_codec.py`."""

from collections.abc import Callable
from typing import Any

import pytest
from kio.serial import entity_reader

from kafkalite._speedups import codec
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.oracles import codec as oracle
from tests.unit.protocol.kio_twin import kio_class

BATCH = bytes(range(256)) * 4


def produce_request() -> ProduceRequest:
    topic = ProduceRequest.TopicProduceData
    data = topic.PartitionProduceData(index=0, records=BATCH)
    return ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic(name="orders", partition_data=[data])])


def produce_response() -> ProduceResponse:
    topic = ProduceResponse.TopicProduceResponse
    data = topic.PartitionProduceResponse(index=0, base_offset=123456, log_start_offset=0)
    return ProduceResponse(responses=[topic(name="orders", partition_responses=[data])])


def fetch_request() -> FetchRequest:
    topic = FetchRequest.FetchTopic
    parts = [topic.FetchPartition(partition=i, fetch_offset=i * 1000, partition_max_bytes=1 << 20) for i in range(10)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic(topic="orders", partitions=parts)])


def fetch_response() -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse
    parts = [
        topic.PartitionData(partition_index=i, high_watermark=i * 1000, aborted_transactions=None, records=BATCH)
        for i in range(10)
    ]
    return FetchResponse(responses=[topic(topic="orders", partitions=parts)])


def metadata_response() -> MetadataResponse:
    topic = MetadataResponse.MetadataResponseTopic
    partitions = [
        topic.MetadataResponsePartition(
            partition_index=i, leader_id=1, leader_epoch=4, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for i in range(6)
    ]
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=i, host="host", port=9092) for i in range(3)],
        cluster_id="abcdefghijklmnopqrstuv",
        controller_id=1,
        topics=[topic(name=f"topic-{i}", topic_id=bytes(16), partitions=partitions) for i in range(20)],
    )


MESSAGES: dict[str, tuple[Callable[[], Any], int]] = {
    "produce request v9": (produce_request, 9),
    "produce response v9": (produce_response, 9),
    "fetch request v12, 10 partitions": (fetch_request, 12),
    "fetch response v12, 10 x 1 KB": (fetch_response, 12),
    "metadata response v12, 20 x 6": (metadata_response, 12),
}
BY_NAME = pytest.mark.parametrize("name", MESSAGES)
BY_ENGINE = pytest.mark.parametrize("engine", [codec, oracle], ids=["c", "py"])


@BY_ENGINE
@BY_NAME
def test_decode(benchmark: Any, name: str, engine: Any) -> None:
    make, version = MESSAGES[name]
    message = make()
    benchmark.group = f"decode {name}"
    assert benchmark(engine.decode, type(message), version, codec.encode(message, version)) == message


@BY_NAME
def test_decode_by_kio(benchmark: Any, name: str) -> None:
    make, version = MESSAGES[name]
    message = make()
    benchmark.group = f"decode {name}"
    theirs = entity_reader(kio_class(type(message), version))
    data = codec.encode(message, version)
    assert benchmark(theirs, data, 0)[1] == len(data)


@BY_ENGINE
@BY_NAME
def test_encode(benchmark: Any, name: str, engine: Any) -> None:
    make, version = MESSAGES[name]
    message = make()
    benchmark.group = f"encode {name}"
    assert benchmark(engine.encode, message, version) == oracle.encode(message, version)


def test_request_header(benchmark: Any) -> None:
    frame = codec.encode_request(produce_request(), 9, 1, "rdkafka")
    assert benchmark(codec.read_request_header, frame).client_id == "rdkafka"


def test_making_a_produce_response(benchmark: Any) -> None:
    assert benchmark(produce_response) == produce_response()
