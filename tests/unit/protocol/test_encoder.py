"""Parts and regions, what the encoder refuses, and how messages are made and compared."""

import copy
import gc
import pickle
import sys
import types

import pytest

from kafkalite._speedups import codec
from kafkalite.errors import DecodeError, EncodeError
from kafkalite.protocol.messages.fetch import FetchResponse
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafkalite.protocol.messages.produce import ProduceRequest
from kafkalite.protocol.schema import ZERO_UUID, Message, Struct, field, int32, string
from tests.oracles import codec as oracle

Topic = FetchResponse.FetchableTopicResponse
Data = Topic.PartitionData


class Region:
    """What the codec sees of a file region."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.length = len(content)

    def read(self) -> bytes:
        return self.content


def answer(*records: object) -> FetchResponse:
    data = [
        Data(partition_index=i, high_watermark=0, aborted_transactions=None, records=each)
        for i, each in enumerate(records)
    ]
    return FetchResponse(responses=[Topic(topic="t", partitions=data)])


def joined(parts: list[object]) -> bytes:
    return b"".join(part.content if isinstance(part, Region) else part for part in parts)


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_encode_parts_does_not_read_file_regions(version: int) -> None:
    one, two, three = Region(b"one"), Region(b"two"), Region(b"three")
    message = answer(one, b"plain", [two, three], None, [], [b"mixed", one])
    parts = codec.encode_parts(message, version, b"HEAD")
    assert [part for part in parts if isinstance(part, Region)] == [one, two, three, one]
    assert all(isinstance(part, Region | bytes) for part in parts)
    whole = codec.encode(message, version, b"HEAD")
    assert joined(parts) == whole
    assert whole == b"HEAD" + oracle.encode(message, version)
    plain = answer(b"one", b"plain", b"twothree", None, b"", b"mixedone")
    assert whole == b"HEAD" + codec.encode(plain, version)


def test_empty_file_region_is_no_part() -> None:
    assert len(codec.encode_parts(answer(Region(b"")), 12)) == 1


def test_large_record_batch_is_not_copied() -> None:
    batch = bytes(16384)
    parts = codec.encode_parts(answer(batch, b"small", bytearray(20000)), 12)
    assert sum(part is batch for part in parts) == 1
    assert joined(parts) == codec.encode(answer(batch, b"small", bytes(20000)), 12)


def test_message_larger_than_the_stack_buffer() -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="n" * 200) for _ in range(5000)]
    message = MetadataRequest(topics=topics)
    data = codec.encode(message, 12)
    assert len(data) > 1_000_000
    assert data == oracle.encode(message, 12)
    assert codec.decode(MetadataRequest, 12, data) == message


def test_file_region_shorter_than_its_length_raises() -> None:
    region = Region(b"abc")
    region.length = 4
    with pytest.raises(EncodeError, match=r"responses\[0\].partitions\[0\].records"):
        codec.encode(answer(region), 12)


@pytest.mark.parametrize("records", [object(), "text", 5, [object()], [Region(b"x"), None]])
def test_records_field_of_a_wrong_type_raises(records: object) -> None:
    for encode in (codec.encode, codec.encode_parts):
        with pytest.raises(EncodeError, match=r"responses\[0\].partitions\[0\].records"):
            encode(answer(records), 12)


def test_null_is_encoded_only_in_versions_that_allow_it() -> None:
    request = MetadataRequest(topics=None)
    assert codec.encode(request, 1)[:4] == b"\xff\xff\xff\xff"
    with pytest.raises(EncodeError, match="topics: null is not allowed"):
        codec.encode(request, 0)


def test_unknown_message_version_raises() -> None:
    with pytest.raises(EncodeError, match="FetchResponse has no version 19"):
        codec.encode(answer(), 19)


def test_decoded_records_are_slices_of_the_input() -> None:
    data = bytearray(codec.encode(request_with(b"batch"), 9))
    records = codec.decode(ProduceRequest, 9, data).topic_data[0].partition_data[0].records
    assert records == b"batch"
    records[0] = ord("B")
    assert b"Batch" in data


def request_with(records: bytes) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=1, timeout_ms=0, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])]
    )


def test_fields_have_kafkas_defaults_and_own_lists() -> None:
    one, two = MetadataResponse(), MetadataResponse()
    assert (one.throttle_time_ms, one.controller_id, one.topics, one.cluster_id) == (0, -1, [], None)
    assert one.topics is not two.topics
    assert codec.decode(MetadataRequest, 0, bytes(4)).allow_auto_topic_creation is True


def test_unknown_field_names_are_rejected() -> None:
    with pytest.raises(TypeError, match="MetadataRequest has no field tpoics"):
        MetadataRequest(tpoics=[])
    with pytest.raises(AttributeError):
        MetadataRequest().tpoics = []


def test_a_struct_is_built_from_all_its_values_in_order() -> None:
    data = ProduceRequest.TopicProduceData.PartitionProduceData.of(0, b"a")
    topic = ProduceRequest.TopicProduceData.of("t", ZERO_UUID, [data])
    assert ProduceRequest.of(None, 1, 0, [topic]) == request_with(b"a")
    for values in ((0,), (0, b"a", 1)):
        with pytest.raises(TypeError, match=f"has 2 fields, not {len(values)}"):
            ProduceRequest.TopicProduceData.PartitionProduceData.of(*values)


def test_message_equality_and_repr() -> None:
    assert request_with(b"a") == request_with(b"a")
    assert request_with(b"a") != request_with(b"b")
    assert request_with(b"a") != 5
    assert repr(Topic.PartitionData.EpochEndOffset(epoch=3)).endswith("EpochEndOffset(epoch=3, end_offset=-1)")


def test_copied_and_pickled_messages_are_equal() -> None:
    message = request_with(b"a")
    shallow, deep, thawed = copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))
    assert shallow == deep == thawed == message
    assert shallow.topic_data is message.topic_data
    assert deep.topic_data is not message.topic_data


def test_encoding_a_deleted_field_raises() -> None:
    request = request_with(b"a")
    del request.acks
    with pytest.raises(EncodeError, match="acks: the field was deleted"):
        codec.encode(request, 9)


def test_struct_of_another_class_is_rejected() -> None:
    with pytest.raises(EncodeError, match=r"topics\[0\].*not a MetadataRequest.MetadataRequestTopic"):
        codec.encode(MetadataRequest(topics=[Topic(partitions=[])]), 9)


def test_encoder_and_decoder_leak_no_references() -> None:
    """Also where encoding or decoding fails half way."""
    held, name = bytes(range(200)), "name" * 30
    good = request_with(held)
    good.topic_data[0].name = name
    bad = request_with(held)
    bad.topic_data[0].name = name
    bad.topic_data.append(None)
    data = codec.encode(good, 9)
    objects = (held, name, data, None, ProduceRequest.TopicProduceData)
    gc.collect()
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(100):
        codec.encode(good, 9)
        codec.encode_parts(good, 9)
        codec.decode(ProduceRequest, 9, data)
        with pytest.raises(EncodeError):
            codec.encode_parts(bad, 9)
        with pytest.raises(DecodeError):
            codec.decode(ProduceRequest, 9, data + b"x")
        with pytest.raises(DecodeError):
            codec.decode(ProduceRequest, 9, data[:-3])
    gc.collect()
    after = [sys.getrefcount(each) for each in objects]
    assert all(abs(new - old) < 50 for new, old in zip(after, before, strict=True)), (before, after)


def test_invalid_message_declarations_are_rejected() -> None:
    with pytest.raises(TypeError, match="is not a wire type"):

        class Wrong(Struct):
            size: int

        Wrong()

    with pytest.raises(TypeError, match="no arrays of arrays"):

        class Nested(Struct):
            rows: list[list[int32]]

        Nested()


def test_struct_nesting_is_bounded() -> None:
    inner: type[Struct] = type("Level", (Struct,), {"__annotations__": {"n": int32}})
    for _ in range(8):
        inner = type("Level", (Struct,), {"__annotations__": {"inner": inner}})

    deep = types.new_class(
        "Deep", (Message,), {"versions": (0, 0)}, lambda body: body.update(__annotations__={"inner": inner})
    )
    with pytest.raises(TypeError, match="nested deeper"):
        codec.decode(deep, 0, b"")


def test_field_becomes_tagged_or_ends_in_a_later_version() -> None:
    class Moving(Message, versions=(0, 3), flexible=1):
        name: string = field(until=2, tag=0, tagged_since=2, default="")
        number: int32 = field(since=1, default=7)

    message = Moving(name="x", number=5)
    encoded = [codec.encode(message, version).hex() for version in range(4)]
    assert encoded == ["000178", "02780000000500", "000000050100020278", "0000000500"]
    assert [oracle.encode(message, version).hex() for version in range(4)] == encoded
    assert codec.decode(Moving, 3, bytes.fromhex(encoded[3])) == Moving(name="", number=5)
