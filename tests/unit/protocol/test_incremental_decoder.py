"""Large messages are decoded in steps, as far as the caller wants."""

import pytest

from kafkalite._speedups.codec import encode
from kafkalite._speedups.codec.incremental_decoder import IncrementalDecoder
from kafkalite.errors import DecodeError
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.metadata import MetadataRequest

Topic = MetadataRequest.MetadataRequestTopic
COUNT = 10


def body(name: str = "t", count: int = COUNT) -> bytes:
    return encode(MetadataRequest(topics=[Topic(name=name)] * count), 1)


def test_advance_reads_one_element_per_step() -> None:
    decoder = IncrementalDecoder(MetadataRequest, 1, body(), True, -1)
    calls = 1
    while not decoder.advance(2):
        assert decoder.message is None
        calls += 1
    assert calls == (1 + COUNT + 1 + 1 + 1) // 2  # begin and end of the array, the end of the message
    assert decoder.message == MetadataRequest(topics=[Topic(name="t")] * COUNT)
    assert decoder.advance(1)


def test_advance_ends_early_after_long_strings() -> None:
    decoder = IncrementalDecoder(MetadataRequest, 1, body("x" * 30_000), True, -1)
    assert not decoder.advance(1_000)
    assert not decoder.advance(1_000)
    calls = 2
    while not decoder.advance(1_000):
        calls += 1
    assert calls == COUNT // 3  # 64 KiB each


def test_invalid_message_ends_the_decoder() -> None:
    decoder = IncrementalDecoder(MetadataRequest, 1, body()[:-1], True, -1)
    with pytest.raises(DecodeError) as caught:
        while not decoder.advance(1):
            pass
    assert (caught.value.kind, caught.value.field) == ("truncated", f"topics[{COUNT - 1}].name")
    with pytest.raises(RuntimeError, match="has failed"):
        decoder.advance(1)


def test_elements_max_bounds_incremental_decoding() -> None:
    topic = FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchTopic.FetchPartition()] * 3)
    data = encode(FetchRequest(topics=[topic] * 3), 4)
    assert IncrementalDecoder(FetchRequest, 4, data, True, 12).advance(1_000)
    with pytest.raises(DecodeError, match="more array elements than allowed") as caught:
        IncrementalDecoder(FetchRequest, 4, data, True, 11).advance(1_000)
    assert caught.value.field == "topics[2].partitions"


def test_incremental_decoder_rejects_unknown_version() -> None:
    with pytest.raises(DecodeError, match="has no version 99"):
        IncrementalDecoder(MetadataRequest, 99, body(), True, -1)


def test_decoder_is_not_reusable() -> None:
    decoder = IncrementalDecoder(MetadataRequest, 1, body(), True, -1)
    with pytest.raises(RuntimeError, match="one message"):
        decoder.__init__(MetadataRequest, 1, body(), True, -1)  # type: ignore[misc]
