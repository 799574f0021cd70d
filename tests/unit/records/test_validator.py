"""Each reason to reject the batch of a client, with the error code of Kafka 4."""

from typing import Any

import pytest

from tests.kit.record_engines import CODECS, SIZE_MAX, build, sealed, with_fields, with_records
from tests.oracles.batch_builder import encode_record, varint

CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87

GOOD = build((1000, b"a", b"one"), (1005, b"b", None, [("h", b"x"), ("n", None)]), (1002, b"c", b""))
KEYLESS = build((1, b"a", b""), (2, None, b""), (3, None, b""), (4, b"d", b""))


def validate(engine: Any, batch: bytes | bytearray, **rules: Any) -> Any:
    return engine.validate_batch(batch, **{"compacted": False, "size_max": SIZE_MAX, **rules})


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_valid_batch(engine: Any, codec: int) -> None:
    batch = build(
        (1000, b"a", b"one"), (1005, b"b", None), (1002, b"c", b""), codec=codec,
        producer_id=7, producer_epoch=2, base_sequence=40, transactional=True, leader_epoch=9,
    )  # fmt: skip
    found = validate(engine, batch, compacted=True)
    assert (found.error, found.message, found.record_errors) == (0, None, [])
    assert (found.base_offset, found.last_offset_delta, found.records_count, found.size) == (0, 2, 3, len(batch))
    assert (found.base_timestamp, found.max_timestamp, found.offset_of_max_timestamp) == (1000, 1005, 1)
    assert (found.header_max_timestamp, found.walked) == (1005, True)
    assert (found.attributes, found.codec, found.leader_epoch) == (codec | 0x10, codec, 9)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 2, 40)


REFUSED_BATCHES = {
    "nothing": (b"", INVALID_RECORD),
    "less than a frame": (GOOD[:16], INVALID_RECORD),
    "cut off": (GOOD[:-1], INVALID_RECORD),
    "two batches": (GOOD + GOOD, INVALID_RECORD),
    "a batch and a bit": (GOOD + b"\x00", INVALID_RECORD),
    "magic 0": (with_fields(GOOD, magic=0), INVALID_RECORD),
    "magic 1": (with_fields(GOOD, magic=1), INVALID_RECORD),
    "magic 3": (with_fields(GOOD, magic=3), CORRUPT_MESSAGE),
    "negative magic": (with_fields(GOOD, magic=255), CORRUPT_MESSAGE),
    "negative length": (with_fields(GOOD, batch_length=-1), CORRUPT_MESSAGE),
    "length below any header": (with_fields(GOOD, batch_length=13), CORRUPT_MESSAGE),
    "length below its own header": (with_fields(GOOD, batch_length=40)[:52], CORRUPT_MESSAGE),
    "length above": (with_fields(GOOD, batch_length=2**31 - 1), INVALID_RECORD),
    "wrong CRC": (with_fields(GOOD, crc=1), CORRUPT_MESSAGE),
    "flipped bit": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), CORRUPT_MESSAGE),
    "codec 5": (with_fields(GOOD, attributes=5), UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (with_fields(GOOD, attributes=7), UNSUPPORTED_COMPRESSION_TYPE),
    "base offset": (with_fields(GOOD, base_offset=1), INVALID_RECORD),
    "no records": (with_fields(GOOD, records_count=0, last_offset_delta=-1), INVALID_RECORD),
    "negative count": (with_fields(GOOD, records_count=-1), INVALID_RECORD),
    "count below deltas": (with_fields(GOOD, records_count=2), INVALID_RECORD),
    "count above deltas": (with_fields(GOOD, records_count=4), INVALID_RECORD),
    "largest delta": (with_fields(GOOD, last_offset_delta=2**31 - 1, records_count=-(2**31)), INVALID_RECORD),
    "control batch": (with_fields(GOOD, attributes=0x20), INVALID_RECORD),
    "producer without sequence": (with_fields(GOOD, producer_id=1, base_sequence=-1), INVALID_RECORD),
    "LogAppendTime": (with_fields(GOOD, attributes=0x08), INVALID_TIMESTAMP),
    "not gzip": (with_fields(GOOD, attributes=1), INVALID_RECORD),
    "not snappy": (with_fields(GOOD, attributes=2), INVALID_RECORD),
    "not lz4": (with_fields(GOOD, attributes=3), INVALID_RECORD),
    "not zstd": (with_fields(GOOD, attributes=4), INVALID_RECORD),
}


@pytest.mark.parametrize(("batch", "code"), REFUSED_BATCHES.values(), ids=REFUSED_BATCHES)
def test_invalid_header_is_rejected(engine: Any, batch: bytes, code: int) -> None:
    found = validate(engine, batch)
    assert (found.error, found.record_errors, found.walked) == (code, [], False)
    assert found.message


ONE = encode_record(0, 0, b"k", b"v")
TWO = encode_record(1, 1, b"k", b"v")
START = b"\x00\x00\x00"  # attributes, timestamp delta, offset delta


def framed(body: bytes) -> bytes:
    return varint(len(body)) + body


# Bytes, number of records claimed, index of the record that is reported.
REFUSED_RECORDS = {
    "one too few": (ONE, 2, 1),
    "bytes left over": (ONE + b"\x00", 1, 0),
    "a record left over": (ONE + TWO, 1, 0),
    "no bytes at all": (b"", 1, 0),
    "negative length": (varint(-1) + ONE[1:], 1, 0),
    "length past the end": (varint(100) + ONE[1:], 1, 0),
    "length of six bytes": (b"\xff\xff\xff\xff\xff\x01" + ONE, 1, 0),
    "length cut off": (b"\x80", 1, 0),
    "length too short for the fields": (varint(3) + ONE[1:], 1, 0),
    "empty record": (b"\x00", 1, 0),
    "room after the headers": (framed(ONE[1:] + b"\x00"), 1, 0),
    "offset delta that starts at 1": (encode_record(1, 0, b"k", b"v"), 1, 0),
    "offset delta twice": (ONE + ONE, 2, 1),
    "offset delta with a gap": (ONE + encode_record(2, 0, b"k", b"v"), 2, 1),
    "negative offset delta": (ONE + encode_record(-1, 0, b"k", b"v"), 2, 1),
    "key past the record": (framed(START + varint(50) + b"k" + b"\x01\x00"), 1, 0),
    "key size -2": (framed(START + varint(-2) + varint(-1) + b"\x00"), 1, 0),
    "value past the record": (framed(START + varint(-1) + varint(50) + b"v\x00"), 1, 0),
    "value size -2": (framed(START + varint(-1) + varint(-2) + b"\x00"), 1, 0),
    "timestamp of eleven bytes": (framed(b"\x00" + b"\x80" * 10 + b"\x01\x00\x01\x01\x00"), 1, 0),
    "no header count": (framed(START + varint(-1) + varint(-1)), 1, 0),
    "negative header count": (framed(START + varint(-1) + varint(-1) + varint(-1)), 1, 0),
    "more headers than bytes": (framed(START + varint(-1) + varint(-1) + varint(2**31 - 1)), 1, 0),
    "header without key": (framed(START + b"\x01\x01\x02" + varint(-1) + varint(-1)), 1, 0),
    "header key past the record": (framed(START + b"\x01\x01\x02" + varint(9) + b"h\x01"), 1, 0),
    "header value past the record": (framed(START + b"\x01\x01\x02" + varint(1) + b"h" + varint(9)), 1, 0),
    "header value size -2": (framed(START + b"\x01\x01\x02" + varint(1) + b"h" + varint(-2)), 1, 0),
}


@pytest.mark.parametrize(("records", "count", "index"), REFUSED_RECORDS.values(), ids=REFUSED_RECORDS)
def test_invalid_records_are_rejected(engine: Any, records: bytes, count: int, index: int) -> None:
    found = validate(engine, with_records(records, count))
    assert found.error == INVALID_RECORD
    assert [at for at, _ in found.record_errors] == [index]
    assert found.message
    assert not found.walked


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_invalid_compressed_records_are_rejected(engine: Any, codec: int) -> None:
    good = build((1, None, b"x" * 100), (2, None, b"y" * 100), codec=codec)
    found = validate(engine, with_fields(good, records_count=3, last_offset_delta=2))
    assert (found.error, [at for at, _ in found.record_errors]) == (INVALID_RECORD, [2])


def test_unwalked_compressed_records_use_the_header_timestamp(engine: Any) -> None:
    batch = with_fields(build((1, None, b"x"), codec=3), records_count=3, last_offset_delta=2, max_timestamp=77)
    found = validate(engine, batch, walk_compressed=False)
    assert (found.error, found.walked) == (0, False)
    assert (found.max_timestamp, found.offset_of_max_timestamp) == (77, 2)
    assert validate(engine, batch).error == INVALID_RECORD


def test_record_headers_of_size_zero_are_valid(engine: Any) -> None:
    body = START + varint(0) + varint(0) + varint(2) + varint(0) + varint(0) + varint(0) + varint(-1)
    assert validate(engine, with_records(framed(body), 1), compacted=True).error == 0


def test_every_missing_key_is_reported(engine: Any) -> None:
    assert validate(engine, KEYLESS).error == 0
    found = validate(engine, KEYLESS, compacted=True)
    assert (found.error, [at for at, _ in found.record_errors]) == (INVALID_RECORD, [1, 2])


def test_at_most_a_thousand_missing_keys_are_reported(engine: Any) -> None:
    found = validate(engine, build(*[(1, None, b"")] * 1500), compacted=True)
    assert (found.error, len(found.record_errors)) == (INVALID_RECORD, 1000)


def test_timestamps_outside_the_range_are_rejected(engine: Any) -> None:
    batch = build((1000, b"a", b""), (999, b"b", b""), (1002, b"c", b""), (-1, b"d", b""), (1001, None, b""))
    assert validate(engine, batch, timestamp_min=999, timestamp_max=1002).error == 0
    found = validate(engine, batch, timestamp_min=1000, timestamp_max=1001, compacted=True)
    assert (found.error, [at for at, _ in found.record_errors]) == (INVALID_TIMESTAMP, [1, 2, 4])


def test_timestamp_overflow_wraps_as_in_java(engine: Any) -> None:
    batch = with_records(encode_record(0, 2**63 - 1, None, None), 1, base_timestamp=2)
    found = validate(engine, batch)
    assert (found.error, found.max_timestamp, found.offset_of_max_timestamp) == (0, -1, 0)


def test_the_first_of_equal_max_timestamps_is_reported(engine: Any) -> None:
    found = validate(engine, with_fields(build((5, None, b""), (9, None, b""), (9, None, b"")), max_timestamp=1))
    assert (found.max_timestamp, found.header_max_timestamp, found.offset_of_max_timestamp) == (9, 1, 1)


def test_batch_without_timestamps(engine: Any) -> None:
    found = validate(engine, build((-1, None, b""), (-1, None, b"")))
    assert (found.error, found.max_timestamp, found.offset_of_max_timestamp) == (0, -1, 1)


def test_batch_above_size_max_is_rejected(engine: Any) -> None:
    assert validate(engine, GOOD, size_max=len(GOOD)).error == 0
    assert validate(engine, GOOD, size_max=len(GOOD) - 1).error == MESSAGE_TOO_LARGE
    assert validate(engine, GOOD[:-1] + b"\x01", size_max=1).error == MESSAGE_TOO_LARGE, "told before the CRC"


def test_decompressed_size_above_the_limit_is_rejected(engine: Any) -> None:
    batch = build((1, None, b"x" * 100_000), codec=1)
    assert validate(engine, batch, decompressed_max=100_100).error == 0
    assert validate(engine, batch, decompressed_max=100_000).error == MESSAGE_TOO_LARGE
    assert validate(engine, batch, size_max=len(batch)).error == 0, "16 MiB are always allowed"


def test_zstd_before_produce_version_7_is_rejected(engine: Any) -> None:
    assert validate(engine, build((1, None, b"x"), codec=4), zstd_allowed=False).error == UNSUPPORTED_COMPRESSION_TYPE
    assert validate(engine, build((1, None, b"x"), codec=3), zstd_allowed=False).error == 0


def test_control_batch_of_the_broker_is_valid(engine: Any) -> None:
    assert validate(engine, with_fields(GOOD, attributes=0x20), control_allowed=True).error == 0


def test_validate_accepts_bytes_like_objects(engine: Any) -> None:
    for batch in (GOOD, bytearray(GOOD), memoryview(b"12" + GOOD)[2:]):
        found = engine.validate_batch(batch, compacted=False, size_max=SIZE_MAX)
        assert (found.error, found.records_count) == (0, 3)


def test_validate_does_not_change_the_batch(engine: Any) -> None:
    batch = bytearray(with_fields(GOOD, max_timestamp=1))
    before = bytes(batch)
    validate(engine, batch)
    assert batch == before == sealed(before)
