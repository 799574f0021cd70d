"""Batches built and read: values in, bytes, values out."""

import gc
import random
import sys
from typing import Any

import pytest

from kafkalite.records import Batch, BatchError, Builder
from tests.kit.record_engines import CODECS, build, random_records, seed, with_fields, with_records

# One record: timestamp 1,600,000,000,000, key "k", value "value", header "h" = "x"; leader epoch 3, producer 9, 1, 2.
GOLDEN = bytes.fromhex(
    "0000000000000000"  # base offset
    "00000042"  # length: what follows
    "00000003"  # leader epoch
    "02"  # magic
    "2b3c542e"  # CRC-32C of what follows
    "0000"  # attributes
    "00000000"  # last offset delta
    "00000174876e8000"  # base timestamp
    "00000174876e8000"  # max timestamp
    "0000000000000009"  # producer id
    "0001"  # producer epoch
    "00000002"  # base sequence
    "00000001"  # records
    "20"  # record: 16 bytes
    "00"  # attributes
    "00"  # timestamp delta
    "00"  # offset delta
    "026b"  # key
    "0a76616c7565"  # value
    "02"  # headers
    "0268"  # name
    "0278"  # value
)


def values(records: Any) -> list[tuple[Any, ...]]:
    return [(record.timestamp, record.key, record.value, record.headers) for record in records]


def test_batch_has_the_golden_bytes(engine: Any) -> None:
    builder = engine.Builder()
    builder.append(1_600_000_000_000, b"k", b"value", [("h", b"x")])
    fields = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 2, "leader_epoch": 3}
    assert builder.build(**fields).hex(" ") == GOLDEN.hex(" ")
    (record,) = engine.Batch(GOLDEN)
    assert (record.offset, *values([record])[0]) == (0, 1_600_000_000_000, b"k", b"value", (("h", b"x"),))


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_built_records_are_read_back(engine: Any, codec: int) -> None:
    rng = random.Random(f"{seed()} {codec}")
    for count in (1, 2, 64, 65, 300):
        records = random_records(rng, count)
        builder = engine.Builder()
        assert [builder.append(*record) for record in records] == list(range(count))
        batch = engine.Batch(builder.build(codec, base_offset=1000))
        batch.check_crc()
        expected = [(timestamp, key, value, tuple(headers)) for timestamp, key, value, headers in records]
        assert values(batch) == values(batch.records()) == expected
        assert [record.offset for record in batch] == list(range(1000, 1000 + count))
        assert (len(batch), batch.codec, batch.last_offset) == (count, codec, 999 + count)
        assert batch.max_timestamp == builder.max_timestamp == max(record[0] for record in records)
        assert batch.base_timestamp == builder.base_timestamp == records[0][0]


def test_builder_sets_header_fields(engine: Any) -> None:
    builder = engine.Builder()
    builder.append(5, None, None)
    fields = {"producer_id": 2**63 - 1, "producer_epoch": 32767, "base_sequence": 2**31 - 1}
    data = builder.build(transactional=True, control=True, base_offset=2**62, leader_epoch=8, **fields)
    batch = engine.Batch(data)
    for name, value in fields.items():
        assert getattr(batch, name) == value
    flags = (batch.transactional, batch.control, batch.log_append_time, batch.delete_horizon)
    assert flags == (True, True, False, False)
    assert (batch.base_offset, batch.leader_epoch, batch.attributes, batch.size) == (2**62, 8, 0x30, len(data))
    assert engine.Batch(with_fields(data, attributes=0x40)).delete_horizon


def test_builder_builds_repeatedly_and_clears(engine: Any) -> None:
    builder = engine.Builder()
    builder.append(7, None, b"one")
    first = builder.build()
    assert builder.build(producer_id=3) != first == builder.build()
    builder.append(9, None, b"two")
    assert len(engine.Batch(builder.build())) == 2
    builder.clear()
    assert (len(builder), builder.size, builder.base_timestamp, builder.max_timestamp) == (0, 61, -1, -1)
    builder.append(7, None, b"one")
    assert builder.build() == first


def test_builder_size_is_the_uncompressed_size(engine: Any) -> None:
    builder = engine.Builder()
    for i in range(200):
        builder.append(i, b"k" * i, None if i % 7 else b"v" * i, [("h", b"")] * (i % 3))
        assert builder.size == len(builder.build())


def test_builder_rejects_records_above_size_max(engine: Any) -> None:
    builder = engine.Builder(200)
    assert builder.append(1, None, b"x" * 500) == 0, "the first always fits"
    assert builder.append(1, None, b"") == -1
    builder.clear()
    appended = sum(builder.append(1, None, b"x" * 10) >= 0 for _ in range(100))
    assert (appended, len(builder)) == (8, 8)
    assert len(builder.build()) == builder.size == 61 + 8 * 17 <= 200


@pytest.mark.parametrize("size_max", [0, -1, 2**31])
def test_builder_rejects_invalid_size_max(engine: Any, size_max: int) -> None:
    with pytest.raises(ValueError, match="size_max"):
        engine.Builder(size_max)


def test_builder_without_records_raises(engine: Any) -> None:
    with pytest.raises(ValueError, match="at least one"):
        engine.Builder().build()


@pytest.mark.parametrize("codec", [-1, 5, 7, 8, 1000])
def test_builder_rejects_unknown_codec(engine: Any, codec: int) -> None:
    builder = engine.Builder()
    builder.append(1, None, b"")
    with pytest.raises(BatchError) as raised:
        builder.build(codec)
    assert raised.value.code == 76


def test_builder_accepts_bytes_like_keys_and_values(engine: Any) -> None:
    builder = engine.Builder()
    builder.append(1, bytearray(b"key"), memoryview(b"value"), [(b"h", bytearray(b"x")), ("n", memoryview(b""))])
    (record,) = engine.Batch(bytearray(builder.build()))
    assert values([record]) == [(1, b"key", b"value", (("h", b"x"), ("n", b"")))]


def test_builder_rejects_str_keys_and_values(engine: Any) -> None:
    builder = engine.Builder()
    for key, value in (("k", b""), (b"", "v")):
        with pytest.raises(TypeError):
            builder.append(1, key, value)
    assert len(builder) == 0


def test_invalid_utf8_in_header_names_is_replaced(engine: Any) -> None:
    builder = engine.Builder()
    builder.append(1, None, None, [(b"\xff", b"x")])
    (record,) = engine.Batch(builder.build())
    assert record.headers == (("\ufffd", b"x"),)


def test_compacted_batch_keeps_record_offsets(engine: Any) -> None:
    from tests.oracles.batch_builder import encode_record

    records = encode_record(3, 0, b"a", None) + encode_record(7, 5, b"b", b"")
    batch = engine.Batch(with_fields(with_records(records, 2), base_offset=100, last_offset_delta=9))
    assert [record.offset for record in batch] == [103, 107]
    assert batch.last_offset == 109
    empty = engine.Batch(with_records(b"", 0, last_offset_delta=9))
    assert (list(empty), empty.records(), len(empty)) == ([], [], 0)


BROKEN = {
    "cut off": build((1, None, b"x"))[:-1],
    "no header": bytes(60),
    "magic 1": with_fields(build((1, None, b"x")), magic=1),
    "length below a header": with_fields(build((1, None, b"x")), batch_length=48),
    "negative length": with_fields(build((1, None, b"x")), batch_length=-1),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_bytes_without_a_batch_raise_batch_error(engine: Any, data: bytes) -> None:
    with pytest.raises(BatchError) as raised:
        engine.Batch(data)
    assert raised.value.code == 2


def test_malformed_record_raises_during_iteration(engine: Any) -> None:
    good = build(*[(i, None, b"x" * 10) for i in range(3)])
    batch = engine.Batch(with_fields(good, records_count=4))
    read = []
    with pytest.raises(BatchError) as raised:
        for record in batch:
            read.append(record.offset)
    assert (read, raised.value.code) == ([0, 1, 2], 87)
    with pytest.raises(BatchError):
        batch.records()
    for count in (2, -1):
        short = engine.Batch(with_fields(good, records_count=count))
        with pytest.raises(BatchError):
            list(short)
        with pytest.raises(BatchError):
            short.records()


def test_check_crc_of_a_corrupt_batch(engine: Any) -> None:
    with pytest.raises(BatchError, match="corrupt"):
        engine.Batch(with_fields(GOLDEN, crc=1)).check_crc()


def test_truncated_last_batch_of_a_fetch_response_is_omitted(engine: Any) -> None:
    one, two = build((1, None, b"a"), base_offset=5), build((2, None, b"b"), codec=3, base_offset=6)
    found = engine.batches(one + two + one[:30])
    assert [batch.base_offset for batch in found] == [5, 6]
    assert [batch.position for batch in found] == [0, len(one)]
    assert [record.value for batch in found for record in batch] == [b"a", b"b"]
    assert engine.batches(b"") == engine.batches(one[:-1]) == engine.batches(one[:11]) == []
    with pytest.raises(BatchError):
        engine.batches(one + bytes(80))


def test_batch_decompression_is_bounded(engine: Any) -> None:
    data = build((1, None, bytes(100_000)), codec=4)
    with pytest.raises(BatchError) as raised:
        list(engine.Batch(data, 0, 100_000))
    assert raised.value.code == 10
    assert len(engine.batches(data, 100_050)[0].records_bytes()) > 100_000


def test_records_own_their_bytes() -> None:
    buffer = bytearray(GOLDEN)
    batch = Batch(buffer)
    record = next(iter(batch))
    with pytest.raises(BufferError):
        buffer.clear()
    del batch
    gc.collect()
    buffer[:] = bytes(len(buffer))
    assert (record.key, record.value, record.headers) == (b"k", b"value", (("h", b"x"),))
    buffer.clear()


def test_records_leak_no_references() -> None:
    value = b"v" * 50
    before = sys.getrefcount(value)
    for _ in range(100):
        builder = Builder()
        builder.append(1, value, value, [("h", value)])
        builder.append(2, memoryview(value), bytearray(value))
        list(Batch(builder.build()))
    assert sys.getrefcount(value) == before
