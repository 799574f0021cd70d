"""Each kind of refusal once, from hand-written bytes, with its position and field."""

import pytest

from kafkalite._speedups import codec
from kafkalite.errors import DecodeError
from kafkalite.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.produce import ProduceRequest
from tests.oracles import codec as oracle
from tests.oracles.codec import uvarint

# Fetch v12 up to its tag section: max_wait_ms, min_bytes, max_bytes, isolation, session id and epoch, no topics, no
# forgotten topics, empty rack, after replica_id.
FETCH = bytes.fromhex("ffffffff 00000001 00000001 00000001 00 00000000 ffffffff 01 01 01")
BAD = [
    # kind, class, version, bytes, position, field
    ("truncated", MetadataRequest, 0, "0000", 0, "topics"),
    ("truncated", MetadataRequest, 0, "00000001 0005 61", 6, "topics[0].name"),
    ("truncated", MetadataRequest, 9, "80", 0, "topics"),
    ("truncated", FetchRequest, 12, FETCH.hex() + "01 00 05 00", 31, "tags"),
    ("negative length", MetadataRequest, 0, "fffffffe", 4, "topics"),
    ("negative length", MetadataRequest, 0, "00000001 8000", 6, "topics[0].name"),
    ("null", MetadataRequest, 0, "ffffffff", 4, "topics"),
    ("null", MetadataRequest, 4, "00000001 ffff 00", 6, "topics[0].name"),
    ("varint", MetadataRequest, 9, "ffffffffff01", 0, "topics"),
    ("varint", MetadataRequest, 9, "ffffffff7f", 0, "topics"),
    ("utf-8", MetadataRequest, 0, "00000001 0002 c328", 6, "topics[0].name"),
    ("string length", MetadataRequest, 9, "02 818002" + "78" * 32768, 4, "topics[0].name"),
    ("array length", MetadataRequest, 0, "7fffffff 0000", 4, "topics"),
    ("array length", MetadataRequest, 0, "00000002 0000 00", 4, "topics"),
    ("trailing bytes", MetadataRequest, 0, "00000000 00", 4, ""),
    ("tag order", FetchRequest, 12, FETCH.hex() + "02 05 00 05 00", 32, "tags"),
    ("tag order", FetchRequest, 12, FETCH.hex() + "02 05 00 04 00", 32, "tags"),
    ("tag count", FetchRequest, 12, FETCH.hex() + "ffffffff0f", 33, "tags"),
    ("tag size", FetchRequest, 12, FETCH.hex() + "01 00 03 01 0000", 32, "cluster_id"),
    ("truncated", FetchRequest, 12, FETCH.hex() + "01 00 01 05 00000000", 32, "cluster_id"),
    ("presence", DescribeTopicPartitionsRequest, 0, "01 00000001 02", 6, "cursor"),
    ("version", ProduceRequest, 2, "", 0, ""),
    ("version", ProduceRequest, 14, "", 0, ""),
    ("version", ProduceRequest, -1, "", 0, ""),
]


@pytest.mark.parametrize("engine", [codec, oracle], ids=["c", "py"])
@pytest.mark.parametrize(("kind", "cls", "version", "data", "position", "field"), BAD)
def test_decode_error_has_position_and_field(engine, kind, cls, version, data, position, field) -> None:
    with pytest.raises(DecodeError) as caught:
        engine.decode(cls, version, bytes.fromhex(data))
    assert (caught.value.kind, caught.value.position, caught.value.field) == (kind, position, field)


def test_every_decode_error_kind_is_tested() -> None:
    assert {row[0] for row in BAD} == set(DecodeError.KINDS)


@pytest.mark.parametrize("engine", [codec, oracle], ids=["c", "py"])
def test_longest_string_is_decoded(engine) -> None:
    topic = MetadataRequest.MetadataRequestTopic(name="x" * 32767)
    body = engine.encode(MetadataRequest(topics=[topic]), 9)
    assert engine.decode(MetadataRequest, 9, body).topics[0].name == topic.name


@pytest.mark.parametrize("engine", [codec, oracle], ids=["c", "py"])
def test_unknown_tagged_fields_are_skipped(engine) -> None:
    request = engine.decode(FetchRequest, 12, FETCH + bytes.fromhex("02 00 02 02 78 63 03 010203"))
    assert request.cluster_id == "x"
    assert engine.encode(request, 12) == FETCH + bytes.fromhex("01 00 02 02 78")


def test_array_elements_of_a_message_are_bounded() -> None:
    body = codec.encode(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="a")] * 6), 4)
    codec.set_elements_max(5)
    try:
        with pytest.raises(DecodeError, match="more array elements than allowed"):
            codec.decode(MetadataRequest, 4, body)
        codec.set_elements_max(6)
        assert len(codec.decode(MetadataRequest, 4, body).topics) == 6
    finally:
        codec.set_elements_max(4_000_000)


@pytest.mark.parametrize("engine", [codec, oracle], ids=["c", "py"])
def test_elements_max_bounds_all_arrays_of_a_message(engine) -> None:
    topic = FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchTopic.FetchPartition()] * 2)
    body = codec.encode(FetchRequest(topics=[topic] * 3), 4)
    assert len(engine.decode(FetchRequest, 4, body, True, 9).topics) == 3
    with pytest.raises(DecodeError, match="more array elements than allowed") as caught:
        engine.decode(FetchRequest, 4, body, True, 8)
    assert (caught.value.kind, caught.value.field) == ("array length", "topics[2].partitions")
    with pytest.raises(DecodeError) as caught:
        engine.decode(FetchRequest, 4, body, True, 0)
    assert (caught.value.kind, caught.value.field) == ("array length", "topics")


@pytest.mark.parametrize("engine", [codec, oracle], ids=["c", "py"])
def test_tagged_fields_count_as_array_elements(engine) -> None:
    body = FETCH + bytes([3, 5, 0, 6, 0, 7, 0])
    assert engine.decode(FetchRequest, 12, body, True, 3) == engine.decode(FetchRequest, 12, FETCH + bytes(1))
    with pytest.raises(DecodeError, match="3 tagged fields are more than allowed"):
        engine.decode(FetchRequest, 12, body, True, 2)


def test_tagged_fields_of_a_request_header_are_bounded() -> None:
    start = bytes.fromhex("0001 000c 00000007 ffff")
    tags = b"".join(uvarint(5 + each) + b"\0" for each in range(1001))
    assert codec.read_request_header(start + uvarint(1000) + tags[:-3]).correlation_id == 7
    with pytest.raises(DecodeError, match="1001 tagged fields are more than allowed"):
        codec.read_request_header(start + uvarint(1001) + tags)


@pytest.mark.parametrize("engine", [codec, oracle], ids=["c", "py"])
def test_bytes_behind_a_request_are_ignored_unless_exact(engine) -> None:
    """librdkafka sends some after Metadata v13, and Kafka does not look at them."""
    request = engine.decode(MetadataRequest, 0, bytes.fromhex("00000000 00"), exact=False)
    assert request == engine.decode(MetadataRequest, 0, bytes(4))
