"""The keyword arguments of a producer: names and units of Java, and errors with the expected values."""

import math

import pytest
from kafkalite_sdk.producer.producer import Producer
from kafkalite_sdk.producer.settings import parse_options
from kafkalite_sdk.values import ProducerRecord


def parsed(**options):
    return parse_options("localhost:9092", options)


def test_defaults_are_idempotent_with_five_requests_in_flight():
    client, producer = parsed()
    assert (producer.acks, producer.idempotent, producer.max_in_flight) == (-1, True, 5)
    assert (producer.linger_s, producer.delivery_timeout_s, producer.max_block_s) == (0.005, 120, 60)
    assert (producer.buffer_bytes, producer.max_request_bytes, producer.codec) == (32 << 20, 1 << 20, 0)
    assert client.bootstrap == (("localhost", 9092),)


def test_times_are_milliseconds_and_reach_both_parts():
    client, producer = parsed(request_timeout_ms=1500, linger_ms=0.5, retry_backoff_ms=2000, metadata_max_age_ms=7)
    assert client.request_timeout_s == producer.request_timeout_s == 1.5
    assert producer.linger_s == 0.0005 and client.metadata_max_age_s == 0.007
    assert producer.retry_backoff_s == producer.retry_backoff_max_s == client.retry_backoff_max_s == 2


def test_a_batch_is_not_larger_than_a_request():
    assert parsed(batch_size=5000, max_request_size=1000).producer.batch_bytes == 1000


@pytest.mark.parametrize(("value", "acks"), [("all", -1), (-1, -1), ("-1", -1), (1, 1), ("1", 1), (0, 0), ("0", 0)])
def test_acks_decide_on_idempotence_unless_it_is_given(value, acks):
    producer = parsed(acks=value).producer
    assert (producer.acks, producer.idempotent) == (acks, acks == -1)


def test_compression_has_levels_and_a_size_from_which_a_thread_compresses():
    producer = parsed(compression_type="zstd", compression_level=19).producer
    assert (producer.codec, producer.level, producer.offload_bytes) == (4, 19, 32 << 10)
    assert parsed(compression_type="lz4").producer.level is None
    assert parsed().producer.offload_bytes is None


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"acks": 2}, ValueError, 'acks is 2, expected "all", 1 or 0'),
        ({"acks": True}, ValueError, "acks is True"),
        ({"acks": 1, "enable_idempotence": True}, ValueError, 'enable_idempotence needs acks="all"'),
        ({"enable_idempotence": 1}, TypeError, "enable_idempotence is 1, expected a bool"),
        ({"max_in_flight": 6}, ValueError, "expected at most 5 with idempotence"),
        ({"max_in_flight": 0}, ValueError, "max_in_flight is 0, expected 1 to"),
        ({"linger_ms": -1}, ValueError, "linger_ms is -1, expected 0 to"),
        ({"linger_ms": math.nan}, ValueError, "linger_ms is nan"),
        ({"linger_ms": "5"}, TypeError, "linger_ms is '5', expected a number of milliseconds"),
        ({"batch_size": 1.5}, TypeError, "batch_size is 1.5, expected an int"),
        ({"delivery_timeout_ms": 1000}, ValueError, "delivery_timeout_ms is 1000, expected at least"),
        ({"compression_type": "brotli"}, ValueError, "compression_type is 'brotli', expected one of none, gzip"),
        ({"compression_type": "snappy", "compression_level": 1}, ValueError, "snappy has no levels"),
        ({"compression_type": "gzip", "compression_level": 12}, ValueError, "gzip is 12, expected -1 to 9"),
        ({"partitioner": "random"}, ValueError, "partitioner is 'random', expected"),
        ({"client_id": None}, TypeError, "client_id is None, expected a str"),
        ({"lingerms": 5}, TypeError, "Producer has no argument 'lingerms'; did you mean 'linger_ms'"),
        ({"bootstrap": 5}, TypeError, "no argument 'bootstrap'"),
        ({"transactional_id": ""}, ValueError, "transactional_id is empty"),
        ({"transactional_id": "t", "acks": 1}, ValueError, 'transactional_id needs acks="all"'),
        ({"transactional_id": "t", "enable_idempotence": False}, ValueError, "transactional_id needs acks"),
        ({"transaction_timeout_ms": 0}, ValueError, "transaction_timeout_ms is 0, expected"),
    ],
)
def test_wrong_options_name_the_option_and_what_is_expected(options, error, text):
    with pytest.raises(error) as raised:
        parsed(**options)
    assert text in str(raised.value)


def test_bootstrap_servers_are_required():
    with pytest.raises(ValueError, match="bootstrap_servers"):
        parse_options("", {})


def test_a_topic_in_place_of_the_address_is_explained():
    with pytest.raises(TypeError, match="Producer has one positional argument, the address"):
        Producer("orders", "localhost:9092")


def test_the_text_of_a_record_shows_short_bytes_and_the_size_of_long_ones():
    text = repr(ProducerRecord("orders", b"v" * 65, b"k" * 64, 1))
    shown = f"value=<65 bytes>, key={b'k' * 64!r}, partition=1, timestamp_ms=None"
    assert text == f"ProducerRecord(topic='orders', {shown})"
    assert "value=['any', 'object'], key=None" in repr(ProducerRecord("orders", ["any", "object"]))
