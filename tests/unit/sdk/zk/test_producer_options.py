"""The options of the producer of Kafka 0.8: defaults, mapping on those of the SDK, and refusals with reasons."""

from typing import Any

import pytest
from kafkalite_sdk.zk import Producer
from kafkalite_sdk.zk.producer.options import REFUSED, parse_options


def test_defaults_are_those_of_kafka_0_8() -> None:
    settings = parse_options(None, "localhost:9092", {})
    assert settings.servers == "localhost:9092" and not settings.queued
    assert settings.options == {
        "acks": 0, "client_id": "", "compression_type": "none", "request_timeout_ms": 10_000, "retry_backoff_ms": 100,
        "retry_backoff_max_ms": 100, "linger_ms": 0, "delivery_timeout_ms": 40_300, "connect_timeout_ms": 10_000,
        "metadata_max_age_ms": 600_000,
    }  # fmt: skip
    assert (settings.queue_messages, settings.enqueue_timeout_s, settings.batch_messages) == (10_000, None, 200)
    assert settings.partition_kept_s == 600.0


def test_options_of_an_asynchronous_producer() -> None:
    settings = parse_options(
        "zk1,zk2:2182/kafka",
        None,
        {
            "producer_type": "async",
            "queue_buffering_max_ms": 7,
            "queue_buffering_max_messages": 5,
            "queue_enqueue_timeout_ms": 1_500,
            "batch_num_messages": 3,
            "request_required_acks": -1,
            "request_timeout_ms": 1_000,
            "message_send_max_retries": 2,
            "retry_backoff_ms": 10,
            "compression_codec": 2,
            "topic_metadata_refresh_interval_ms": -1,
            "client_id": "orders",
            "security_protocol": "PLAINTEXT",
        },
    )
    assert settings.servers == "zookeeper://zk1,zk2:2182/kafka" and settings.queued
    assert (settings.queue_messages, settings.enqueue_timeout_s, settings.batch_messages) == (5, 1.5, 3)
    assert (settings.linger_s, settings.partition_kept_s) == (0.007, -0.001)
    options = settings.options
    assert (options["acks"], options["linger_ms"], options["delivery_timeout_ms"]) == (-1, 7, 3_027)
    assert (options["compression_type"], options["client_id"]) == ("snappy", "orders")
    assert options["metadata_max_age_ms"] == 2**31 - 1 and options["security_protocol"] == "PLAINTEXT"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_other_options_of_java_are_refused_with_a_reason(name: str) -> None:
    options: Any = {name: "x"}
    with pytest.raises(ValueError, match=f"{name} is not supported: .{{10}}"):
        Producer(broker_list="localhost:9092", **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"producer_type": "both"}, "producer_type is 'both', expected 'sync' or 'async'"),
        ({"request_required_acks": 2}, "request_required_acks is 2, expected -1 or 0 or 1"),
        ({"request_required_acks": True}, "request_required_acks is True"),
        ({"compression_codec": "zstd"}, "compression_codec is 'zstd', expected none, gzip, snappy, lz4, or 0 to 3"),
        ({"compression_codec": 4}, "compression_codec is 4"),
        ({"batch_num_messages": 5, "queue_buffering_max_messages": 4}, "expected at most queue_buffering_max_messages"),
        ({"queue_enqueue_timeout_ms": -2}, "queue_enqueue_timeout_ms is -2"),
        ({"request_timeout_ms": 0}, "request_timeout_ms is 0"),
    ],
)
def test_wrong_values_are_rejected(options: Any, words: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        Producer(broker_list="localhost:9092", **options)
    assert words in str(caught.value)


def test_unknown_options_are_rejected() -> None:
    options: Any = {"batch_num_message": 5}
    with pytest.raises(TypeError, match=r"no argument 'batch_num_message'; did you mean 'batch_num_messages'"):
        Producer(broker_list="localhost:9092", **options)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("0:a:9092,1:b:9093", "a:9092,b:9093"),
        ("a:9092, b", "a:9092,b"),
        ("7:[::1]:9092", "[::1]:9092"),
        ("[::1]:9092", "[::1]:9092"),
        ("10.0.0.1:9092", "10.0.0.1:9092"),
    ],
)
def test_broker_lists(text: str, servers: str) -> None:
    assert parse_options(None, text, {}).servers == servers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0:a:9092,0:b:9092", "the id 0 twice"),
        ("0:a:9092,b:9092", "an id for each broker or for none"),
        (" , ", 'expected "host:port,..." or "id:host:port,..."'),
    ],
)
def test_wrong_broker_lists_are_rejected(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="broker_list") as caught:
        parse_options(None, text, {})
    assert words in str(caught.value)


@pytest.mark.parametrize(("zookeeper", "brokers"), [(None, None), ("zk", "broker")])
def test_one_source_of_brokers_is_given(zookeeper: str | None, brokers: str | None) -> None:
    with pytest.raises(ValueError, match="expected zk_connect or broker_list, one of both"):
        parse_options(zookeeper, brokers, {})


def test_addresses_are_checked_at_once() -> None:
    with pytest.raises(ValueError, match=r"the port of zk:0 is 0"):
        Producer("zk:0")
    with pytest.raises(ValueError, match=r"'broker:x' is not an address"):
        Producer(broker_list="broker:x")
