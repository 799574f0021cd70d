"""What `send` accepts, and that it keeps no reference to what the caller may change; with and without metadata."""

import enum
from array import array

import numpy
import pytest

from kafkalite._speedups.records.batches import Batch
from tests.unit.sdk.accumulators import accumulator, waiting


class Topic(enum.StrEnum):
    ORDERS = "t"


class Bytes(bytes):
    def __bytes__(self) -> bytes:
        return b"another content"


@pytest.fixture(params=[True, False], ids=["known", "waiting"])
async def known(request) -> bool:
    return request.param


def buffer_of(known: bool, **options):
    buffer = accumulator(**options)
    if known:
        buffer.set_partitions("t", 3)
    return buffer


def sent(buffer, known: bool, partition: int):
    """The records of a partition, after the metadata has arrived."""
    if not known:
        assert buffer.set_partitions("t", 3) == []
    queue = buffer.partitions_of("t")[partition]
    return [
        (record.timestamp, record.key, record.value, record.headers) for record in Batch(queue.open.builder.build())
    ]


async def test_records_do_not_change_with_the_objects_that_were_sent(known):
    buffer = buffer_of(known)
    content, headers = bytearray(b"0"), [("n", bytearray(b"0"))]
    for number in range(3):
        content[:] = headers[0][1][:] = b"%d" % number
        headers[0] = ("n", headers[0][1])
        buffer.send("t", memoryview(content), content, partition=1, headers=headers)
    content[:] = headers[0][1][:] = b"x"
    headers.clear()
    expected = [(1234, b"%d" % number, b"%d" % number, (("n", b"%d" % number),)) for number in range(3)]
    assert sent(buffer, known, 1) == expected


async def test_all_buffers_are_sent_as_their_bytes(known):
    buffer = buffer_of(known)
    for value in (array("B", [1, 2]), numpy.array([1, 2], numpy.uint8), Bytes(b"\x01\x02"), numpy.bytes_(b"\x01\x02")):
        buffer.send("t", value, partition=0)
    assert [value for _, _, value, _ in sent(buffer, known, 0)] == [b"\x01\x02"] * 4


@pytest.mark.parametrize(
    "options", [{}, {"partitioner": "crc32"}, {"partitioner": lambda *_: 0}], ids=["murmur2", "crc32", "own"]
)
@pytest.mark.parametrize("name", ["key", "value", "headers"])
async def test_a_number_is_rejected_before_bytes_of_its_size_are_allocated(known, name, options):
    buffer = buffer_of(known, **options)
    for number in (10**15, numpy.int64(10**15), numpy.array(10**15), numpy.float64(1.5), True):
        wrong = {name: [("n", number)] if name == "headers" else number}
        with pytest.raises(TypeError, match=r"are bytes or None, not .*; encode the object"):
            buffer.send("t", **{"value": b"v", **wrong})
    assert buffer.buffered == 0


async def test_a_topic_may_be_of_a_subclass_of_str(known):
    buffer = buffer_of(known)
    future = buffer.send(Topic.ORDERS, b"v", partition=0)
    assert sent(buffer, known, 0) == [(1234, None, b"v", ())]
    buffer.complete(buffer.partitions_of("t")[0].open, 0)
    assert type(future.result().topic) is str
    for wrong in (b"t", None, 5):
        with pytest.raises(TypeError, match=r"topic is .*, expected a str"):
            buffer.send(wrong, b"v")


@pytest.mark.parametrize("name", ["timestamp_ms", "partition"])
async def test_numbers_that_do_not_fit_are_rejected_with_their_name(known, name):
    buffer = buffer_of(known)
    for wrong in (2**63, -(2**63) - 1):
        with pytest.raises(ValueError, match=f"{name} is {wrong}, expected an integer of 64 bits"):
            buffer.send("t", b"v", **{name: wrong})
    for wrong in (1.5, "1"):
        with pytest.raises(TypeError, match=f"{name} is {wrong!r}, expected an integer"):
            buffer.send("t", b"v", **{name: wrong})
    assert buffer.buffered == 0


@pytest.mark.parametrize("timestamp_ms", [2**63 - 1, -(2**63), 0])
async def test_each_time_of_64_bits_arrives_unchanged(known, timestamp_ms):
    buffer = buffer_of(known)
    buffer.send("t", b"v", partition=0, timestamp_ms=5)
    buffer.send("t", b"v", partition=0, timestamp_ms=timestamp_ms)
    assert [timestamp for timestamp, *_ in sent(buffer, known, 0)] == [5, timestamp_ms]


async def test_the_number_of_records_without_an_outcome_covers_waiting_and_divided_ones():
    buffer = accumulator()
    buffer.send("unknown", b"v")
    buffer.set_partitions("t", 1)
    for _ in range(4):
        buffer.send("t", b"v")
    assert buffer.records_incomplete == 5
    batch = buffer.partitions_of("t")[0].open
    first, _ = buffer.split(batch)
    buffer.complete(first, 0)
    assert buffer.records_incomplete == 3


async def test_a_topic_is_unused_when_it_has_no_records_and_had_none_since_the_last_question():
    buffer = accumulator()
    buffer.set_partitions("t", 1)
    buffer.send("t", b"v")
    buffer.send("unknown", b"v")
    assert buffer.unused_topics() == buffer.unused_topics() == []
    with pytest.raises(ValueError, match="records for t have no outcome yet"):
        buffer.forget_topic("t")
    buffer.complete(buffer.partitions_of("t")[0].open, 0)
    assert buffer.unused_topics() == ["t"]
    buffer.forget_topic("t")
    assert buffer.partitions_of("t") is None
    buffer.send("t", b"again")
    buffer.set_partitions("t", 1)
    assert waiting(buffer.partitions_of("t")[0]) == [b"again"]
